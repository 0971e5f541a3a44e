//! `tollgate mock`: the mock provider alone, for tests from other languages.

use tollgate_mock::{Mock, Options};

use crate::{
    cli::{Failure, MockArgs},
    out::print,
    signals,
};

pub(crate) fn run(args: &MockArgs) -> Result<(), Failure> {
    let options = Options { listen: args.listen, ..Options::default() };
    let mock = Mock::start(options).map_err(Failure::refused)?;
    if args.print_address {
        print(&format!("listening on http://{}\n", mock.addr))?;
    }
    signals::wait_for_stop().map_err(Failure::refused)
}
