# Short names for what `cargo` and `cargo xtask` do. Nothing here is needed to build or test.

# List the recipes.
default:
    @just --list

# Mock provider, proxy and a few calls, without any set-up.
demo:
    cargo run --release -- demo

# Everything CI runs.
test:
    cargo xtask test

# What needs no release binary and no download.
quick:
    cargo xtask test --quick

# The rules of the house.
tidy:
    cargo xtask tidy

# The official Python SDKs against the release binary.
sdk:
    cargo xtask test --only build --only sdk

# Formatting and lints of the whole workspace.
lint:
    cargo fmt --all --check
    cargo clippy --workspace --all-targets -- --deny warnings

# Known vulnerabilities in dependencies; fetches the advisory database.
advisories:
    cargo deny check advisories
