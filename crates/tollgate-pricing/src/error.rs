//! Why a price table was refused.

use crate::decimal::DecimalError;

/// Why a price table was refused. All of them are faults of the table's text, none is transient.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PriceError {
    /// Not YAML of the documented shape. The text names the line and the field.
    #[error("price table: {0}")]
    Syntax(String),
    /// A number that cannot be a price.
    #[error("price table: model `{model}`: `{field}: {text}` {source}")]
    Number {
        /// The row.
        model: String,
        /// The field within the row.
        field: String,
        /// What stands there.
        text: String,
        /// What is wrong with it.
        source: DecimalError,
    },
    /// A field that contradicts another one, or that is far from every price there is.
    #[error("price table: model `{model}`: `{field}` {problem}")]
    Field {
        /// The row.
        model: String,
        /// The field within the row.
        field: String,
        /// What is wrong and what is allowed.
        problem: String,
    },
    /// A row in a currency that has no rate.
    #[error(
        "price table: model `{model}` is priced in {currency}, which has no rate to USD: give one in the configuration"
    )]
    NoRate {
        /// The row.
        model: String,
        /// Its currency.
        currency: String,
    },
    /// One name for two rows.
    #[error("price table: `{name}` names both `{first}` and `{second}`")]
    Ambiguous {
        /// The id or alias.
        name: String,
        /// A row it stands for.
        first: String,
        /// The other one.
        second: String,
    },
}
