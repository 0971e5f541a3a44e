//! Usage events: type, batched writer, reader.
