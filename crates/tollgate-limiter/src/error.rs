//! Calls that do not fit the reservation they name.

use core::fmt;

/// Why a ledger did not run a call. Always the caller's fault; nothing changed, and the same call
/// fails again.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum LedgerError {
    /// The id belongs to another plan.
    OtherPlan,
    /// The id was settled or released before this reserve came: a late duplicate.
    AlreadyEnded,
    /// No open reservation has this id.
    NotHeld,
    /// There must be one amount for each entry of the plan.
    WrongLength {
        /// How many entries the plan has.
        entries: usize,
        /// How many amounts were given.
        given: usize,
    },
    /// This extension was made before with other charges.
    OtherCharges {
        /// The extension's number.
        step: u32,
    },
    /// A later extension was made already and this one was not: a late duplicate.
    StaleStep {
        /// The extension's number.
        step: u32,
    },
    /// The reservation has [`EXTENSIONS_MAX`](crate::EXTENSIONS_MAX) extensions.
    TooManyExtensions,
}

impl fmt::Display for LedgerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OtherPlan => f.write_str("the id belongs to a reservation with another plan"),
            Self::AlreadyEnded => f.write_str("the id was settled or released before it was reserved"),
            Self::NotHeld => f.write_str("no open reservation has this id"),
            Self::WrongLength { entries, given } => {
                write!(f, "the plan has {entries} entries, {given} amounts were given")
            }
            Self::OtherCharges { step } => {
                write!(f, "extension {step} was made before with other charges")
            }
            Self::StaleStep { step } => {
                write!(f, "extension {step} comes after a later one and was never made")
            }
            Self::TooManyExtensions => {
                write!(f, "a reservation can be extended {} times", crate::EXTENSIONS_MAX)
            }
        }
    }
}

impl core::error::Error for LedgerError {}
