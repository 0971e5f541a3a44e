//! The layer table: who may depend on whom.

use super::Problem;
use crate::workspace::{Dependency, Package};

/// What one crate may use. Development dependencies are free.
struct Layer {
    name: &'static str,
    /// Crates of this workspace.
    may_use: &'static [&'static str],
    /// Crates from outside that would break the crate's promise.
    must_not_use: &'static [&'static str],
}

/// Crates that open sockets or wait.
const IO: &[&str] =
    &["tokio", "tokio-util", "hyper", "hyper-util", "hyper-rustls", "socket2", "fred", "redis"];

/// From the bottom to the top; a crate uses only crates above it in this list.
const LAYERS: &[Layer] = &[
    Layer { name: "tollgate-limiter", may_use: &[], must_not_use: IO },
    Layer { name: "tollgate-pricing", may_use: &["tollgate-limiter"], must_not_use: IO },
    Layer {
        name: "tollgate-providers",
        may_use: &["tollgate-limiter", "tollgate-pricing"],
        must_not_use: IO,
    },
    Layer {
        name: "tollgate-store",
        may_use: &["tollgate-limiter"],
        must_not_use: &["hyper", "fred", "redis"],
    },
    Layer {
        name: "tollgate-store-redis",
        may_use: &["tollgate-limiter", "tollgate-store"],
        must_not_use: &["hyper", "tollgate-pricing"],
    },
    Layer { name: "tollgate-tower", may_use: &["tollgate-limiter", "tollgate-store"], must_not_use: IO },
    Layer { name: "tollgate-usage", may_use: &["tollgate-limiter"], must_not_use: IO },
    Layer { name: "tollgate-config", may_use: &["tollgate-limiter", "tollgate-pricing"], must_not_use: IO },
    Layer {
        name: "tollgate-proxy",
        may_use: &[
            "tollgate-config",
            "tollgate-limiter",
            "tollgate-pricing",
            "tollgate-providers",
            "tollgate-store",
            "tollgate-usage",
        ],
        must_not_use: &["fred", "redis"],
    },
    Layer { name: "tollgate-mock", may_use: &[], must_not_use: &["fred", "redis"] },
];

/// Crates at the top: they may use everything below, and nothing uses them.
const TOP: &[&str] = &["tollgate", "tollgate-examples", "tollgate-tests", "xtask"];

/// Dependencies that point upward or break a crate's promise.
pub(super) fn check(packages: &[Package]) -> Vec<Problem> {
    let mut problems = Vec::new();
    for package in packages {
        let normal = package.dependencies.iter().filter(|dependency| dependency.kind.is_none());
        let layer = LAYERS.iter().find(|layer| layer.name == package.name);
        if layer.is_none() && !TOP.contains(&package.name.as_str()) {
            let message = "has no place in the layer table (xtask/src/tidy/layers.rs)";
            problems.push(Problem::file(&package.name, message));
        }
        for dependency in normal {
            if let Some(why) = objection(layer, packages, dependency) {
                problems.push(Problem::file(&package.name, format!("uses {}, {why}", dependency.name)));
            }
        }
    }
    problems
}

/// Why the crate at `layer` (`None`: at the top) may not have `dependency`.
fn objection(layer: Option<&Layer>, packages: &[Package], dependency: &Dependency) -> Option<String> {
    let name = dependency.name.as_str();
    if TOP.contains(&name) {
        return Some("which is at the top".to_owned());
    }
    let layer = layer?;
    if packages.iter().any(|package| package.name == name) && !layer.may_use.contains(&name) {
        return Some("which is not below it".to_owned());
    }
    if layer.must_not_use.contains(&name) {
        return Some("which it must not know".to_owned());
    }
    let needs_nothing = layer.name == "tollgate-limiter";
    (needs_nothing && !dependency.optional).then(|| "but builds without any dependency".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn package(name: &str, dependencies: &[(&str, Option<&str>)]) -> Package {
        let dependency = |&(name, kind): &(&str, Option<&str>)| Dependency {
            name: name.to_owned(),
            kind: kind.map(str::to_owned),
            optional: false,
        };
        Package { name: name.to_owned(), dependencies: dependencies.iter().map(dependency).collect() }
    }

    fn problems(packages: &[Package]) -> Vec<String> {
        check(packages).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_downward_dependency_passes_and_an_upward_one_is_named() {
        let store = package("tollgate-store", &[("tollgate-limiter", None), ("thiserror", None)]);
        let pricing = package("tollgate-pricing", &[("tollgate-store", None)]);
        assert_eq!(
            problems(&[store, pricing]),
            ["tollgate-pricing: uses tollgate-store, which is not below it"]
        );
    }

    #[test]
    fn development_dependencies_are_free() {
        let limiter =
            package("tollgate-limiter", &[("proptest", Some("dev")), ("tollgate-store", Some("dev"))]);
        assert_eq!(problems(&[limiter, package("tollgate-store", &[])]), Vec::<String>::new());
    }

    #[test]
    fn the_limiter_needs_no_dependency() {
        let limiter = package("tollgate-limiter", &[("serde", None)]);
        assert_eq!(problems(&[limiter]), ["tollgate-limiter: uses serde, but builds without any dependency"]);
    }

    #[test]
    fn the_adapters_open_no_sockets() {
        let providers = package("tollgate-providers", &[("tokio", None)]);
        assert_eq!(problems(&[providers]), ["tollgate-providers: uses tokio, which it must not know"]);
    }

    #[test]
    fn nothing_uses_the_top_and_every_crate_has_a_place() {
        let new = package("tollgate-new", &[("xtask", None)]);
        let expected = [
            "tollgate-new: has no place in the layer table (xtask/src/tidy/layers.rs)",
            "tollgate-new: uses xtask, which is at the top",
        ];
        assert_eq!(problems(&[new]), expected);
    }

    #[test]
    fn the_table_itself_points_downward() {
        for (place, layer) in LAYERS.iter().enumerate() {
            for used in layer.may_use {
                let below = LAYERS.iter().take(place).any(|lower| lower.name == *used);
                assert!(below, "{} may use {used}, which is not below it", layer.name);
            }
        }
    }
}
