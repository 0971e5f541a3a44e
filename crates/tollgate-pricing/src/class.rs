//! What can have a price, and in which unit.

/// How a price is written and what it is multiplied with.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum Unit {
    /// USD per million tokens, times tokens.
    MillionTokens,
    /// USD per million characters, times characters.
    MillionCharacters,
    /// USD per minute, times milliseconds.
    Minute,
    /// USD for one piece (image, request, search), times pieces.
    Piece,
}

impl Unit {
    /// What follows "USD per" in a bill.
    pub const fn name(self) -> &'static str {
        match self {
            Self::MillionTokens => "million tokens",
            Self::MillionCharacters => "million characters",
            Self::Minute => "minute",
            Self::Piece => "piece",
        }
    }

    /// Digits after the point that a price can have: one unit counted costs whole pico-USD.
    pub(crate) const fn places(self) -> i32 {
        match self {
            Self::MillionTokens | Self::MillionCharacters => 6,
            Self::Minute | Self::Piece => 12,
        }
    }

    /// What a rate in pico-USD was multiplied by when it is the price of one unit of writing.
    pub(crate) const fn counted_per_price(self) -> u128 {
        match self {
            Self::MillionTokens | Self::MillionCharacters => 1_000_000,
            Self::Minute | Self::Piece => 1,
        }
    }

    /// How many of what is counted one rate pays: a minute is counted in milliseconds.
    pub(crate) const fn counted_per_rate(self) -> u128 {
        match self {
            Self::Minute => 60_000,
            Self::MillionTokens | Self::MillionCharacters | Self::Piece => 1,
        }
    }
}

macro_rules! classes {
    ($($(#[$doc:meta])* $variant:ident = $name:literal, $unit:ident;)*) => {
        /// A class of usage that has a price of its own.
        #[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
        #[non_exhaustive]
        pub enum Class {
            $($(#[$doc])* $variant,)*
        }

        impl Class {
            /// All classes, in the order of a bill.
            pub const ALL: [Self; Self::COUNT] = [$(Self::$variant,)*];
            /// How many there are.
            pub const COUNT: usize = [$($name,)*].len();

            /// The field of a price table that holds its price.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $name,)* }
            }

            /// The unit of its price.
            pub const fn unit(self) -> Unit {
                match self { $(Self::$variant => Unit::$unit,)* }
            }

            /// The class that a field of a price table is about.
            pub fn from_name(name: &str) -> Option<Self> {
                match name { $($name => Some(Self::$variant),)* _ => None }
            }
        }
    };
}

classes! {
    /// Input tokens that no other class covers.
    Input = "input", MillionTokens;
    /// Input tokens read from a cache.
    CacheRead = "cache_read", MillionTokens;
    /// Input tokens written to a cache for five minutes or for an unknown time.
    CacheWrite = "cache_write", MillionTokens;
    /// Input tokens written to a cache for one hour.
    CacheWrite1h = "cache_write_1h", MillionTokens;
    /// Output tokens that no other class covers.
    Output = "output", MillionTokens;
    /// Reasoning tokens within the output.
    Reasoning = "reasoning", MillionTokens;
    /// Audio tokens within the uncached input.
    AudioInput = "audio_input", MillionTokens;
    /// Audio tokens within the cache reads.
    CachedAudioInput = "cached_audio_input", MillionTokens;
    /// Audio tokens within the output.
    AudioOutput = "audio_output", MillionTokens;
    /// Image tokens within the uncached input.
    ImageInput = "image_input", MillionTokens;
    /// Image tokens within the output.
    ImageOutput = "image_output", MillionTokens;
    /// Images that are billed by the piece.
    Image = "per_image", Piece;
    /// Audio that is billed by its length.
    Audio = "per_minute_audio", Minute;
    /// Text that is billed by its length.
    Characters = "per_million_characters", MillionCharacters;
    /// The call itself.
    Request = "per_request", Piece;
    /// Web searches the provider ran.
    WebSearch = "per_web_search", Piece;
    /// Web fetches the provider ran.
    WebFetch = "per_web_fetch", Piece;
}

impl Class {
    /// Its place in [`Class::ALL`].
    pub(crate) const fn index(self) -> usize {
        self as usize
    }

    /// A fee for something beside the model, which no multiplier of the model's price touches and
    /// which a tier or a context step that does not name it leaves as it is.
    pub(crate) const fn is_fee(self) -> bool {
        matches!(self, Self::Request | Self::WebSearch | Self::WebFetch)
    }

    /// What is taken where this class has no price.
    pub(crate) const fn fallback(self) -> Option<Self> {
        match self {
            Self::CacheRead | Self::CacheWrite | Self::AudioInput | Self::ImageInput => Some(Self::Input),
            Self::CacheWrite1h => Some(Self::CacheWrite),
            Self::CachedAudioInput => Some(Self::CacheRead),
            Self::Reasoning | Self::AudioOutput | Self::ImageOutput => Some(Self::Output),
            _ => None,
        }
    }

    /// Whether taking the fallback is how providers bill, so that there is nothing to report:
    /// reasoning is output and an image in a prompt is input unless a price list says otherwise.
    pub(crate) const fn fallback_is_usual(self) -> bool {
        matches!(self, Self::Reasoning | Self::ImageInput)
    }
}
