//! The list of messages, which both protocols have under the same name.

use serde::de::{MapAccess, SeqAccess};

use crate::content::{Gathered, Place, Walk};
use crate::fields::Seen;
use crate::json::{Into, Scalar, Sink, Skip};

/// Reads `messages`; anything but a list is a fault.
pub(crate) struct Messages<'r> {
    pub(crate) gathered: &'r mut Gathered,
    pub(crate) seen: &'r mut Seen,
}

impl Messages<'_> {
    fn refuse(self) {
        self.seen.fail(Some("messages"), "`messages` must be a list of messages.");
    }
}

impl<'de> Sink<'de> for Messages<'_> {
    type Out = ();

    fn scalar(self, _: Scalar) {
        self.refuse();
    }

    fn text(self, _: &str) {
        self.refuse();
    }

    fn array<A: SeqAccess<'de>>(self, mut items: A) -> Result<(), A::Error> {
        let gathered = self.gathered;
        loop {
            gathered.prompt.begin_message();
            if items.next_element_seed(Into(Walk { gathered, place: Place::Content }))?.is_none() {
                return Ok(());
            }
            gathered.prompt.end_message();
            gathered.sizes.messages = gathered.sizes.messages.saturating_add(1);
        }
    }

    fn object<A: MapAccess<'de>>(self, fields: A) -> Result<(), A::Error> {
        self.refuse();
        Skip.object(fields)
    }
}
