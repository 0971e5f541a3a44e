//! Images in tokens, by the providers' published rules, from real dimensions.
//!
//! Which rule holds is known only with the model, which may stand behind the images in a body. So
//! every rule's sum is kept while the images pass; no list of them is.

use crate::media::Dimensions;

/// How a model counts images.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum ImageRule {
    /// Anthropic before 4.7: 28 px patches, long side to 1,568 px, at most 1,568 tokens.
    ClaudeSmall,
    /// Anthropic from 4.7 on: 28 px patches, long side to 2,576 px, at most 4,784 tokens.
    ClaudeLarge,
    /// OpenAI: a base and so much a 512 px tile.
    Tiles { base: u64, tile: u64 },
    /// OpenAI: 32 px patches, at most 1,536, times a factor.
    Patches { percent: u64 },
    /// Not known: the largest of the common rules, without downscaling.
    Dearest,
}

/// Sums over the images of a request, by rule.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) struct ImageSizes {
    pub(crate) count: u64,
    claude_small: u64,
    claude_large: u64,
    tiles: u64,
    patches: u64,
    patches_undownscaled: u64,
}

/// Downscaling and cap of Anthropic's older and newer models: long side in px, tokens.
const CLAUDE_SMALL: (u64, u64) = (1_568, 1_568);
const CLAUDE_LARGE: (u64, u64) = (2_576, 4_784);
/// A tall image of 2,048 × 768 px: the most tiles there can be.
const MAX_TILES: u64 = 8;
const MAX_PATCHES: u64 = 1_536;
/// The most patches of an image that is not downscaled (detail `original`).
const MAX_PATCHES_UNDOWNSCALED: u64 = 10_000;

impl ImageSizes {
    /// Counts an image. Dimensions that are not known count as the largest image there is. `is_low`:
    /// OpenAI's `detail: low`, which costs a base only.
    pub(crate) fn add(&mut self, dimensions: Option<Dimensions>, is_low: bool) {
        let (width, height) = dimensions.map_or((u64::from(u32::MAX), u64::from(u32::MAX)), |d| {
            (u64::from(d.width), u64::from(d.height))
        });
        let grow = |sum: &mut u64, by: u64| *sum = sum.saturating_add(by);
        grow(&mut self.count, 1);
        grow(&mut self.claude_small, claude_tokens(width, height, CLAUDE_SMALL));
        grow(&mut self.claude_large, claude_tokens(width, height, CLAUDE_LARGE));
        let tiles = dimensions.map_or(MAX_TILES, |_| tile_count(width, height));
        grow(&mut self.tiles, if is_low { 0 } else { tiles });
        let patches = width.div_ceil(32).saturating_mul(height.div_ceil(32));
        grow(&mut self.patches, patches.min(MAX_PATCHES));
        grow(&mut self.patches_undownscaled, patches.min(MAX_PATCHES_UNDOWNSCALED));
    }

    /// The tokens of all images under `rule`.
    pub(crate) fn tokens(&self, rule: ImageRule) -> u64 {
        let tiled = |base: u64, tile: u64| {
            self.count.saturating_mul(base).saturating_add(self.tiles.saturating_mul(tile))
        };
        match rule {
            ImageRule::ClaudeSmall => self.claude_small,
            ImageRule::ClaudeLarge => self.claude_large,
            ImageRule::Tiles { base, tile } => tiled(base, tile),
            ImageRule::Patches { percent } => self.patches.saturating_mul(percent).div_ceil(100),
            ImageRule::Dearest => tiled(85, 170).max(self.claude_large).max(self.patches_undownscaled),
        }
    }
}

/// Anthropic: `ceil(w/28) · ceil(h/28)` after downscaling, capped (vision guide).
fn claude_tokens(width: u64, height: u64, (long_side, cap): (u64, u64)) -> u64 {
    let (width, height) = fit(width, height, long_side);
    width.div_ceil(28).saturating_mul(height.div_ceil(28)).min(cap)
}

/// OpenAI: fit into 2,048 px, bring the short side down to 768 px, count 512 px tiles.
fn tile_count(width: u64, height: u64) -> u64 {
    let (width, height) = fit(width, height, 2_048);
    let short = width.min(height);
    let (width, height) =
        if short > 768 { (scale(width, 768, short), scale(height, 768, short)) } else { (width, height) };
    width.div_ceil(512).saturating_mul(height.div_ceil(512)).min(MAX_TILES)
}

/// Scales down so that the longer side is at most `long_side`; never below one pixel.
fn fit(width: u64, height: u64, long_side: u64) -> (u64, u64) {
    let long = width.max(height);
    if long <= long_side {
        return (width, height);
    }
    (scale(width, long_side, long), scale(height, long_side, long))
}

fn scale(side: u64, to: u64, from: u64) -> u64 {
    side.saturating_mul(to).div_ceil(from.max(1)).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tokens(rule: ImageRule, width: u32, height: u32) -> u64 {
        let mut sizes = ImageSizes::default();
        sizes.add(Some(Dimensions { width, height }), false);
        sizes.tokens(rule)
    }

    /// Published or recorded numbers.
    #[test]
    fn rules_give_the_published_numbers() {
        assert_eq!(tokens(ImageRule::ClaudeSmall, 1001, 1001), 1296);
        assert_eq!(tokens(ImageRule::ClaudeSmall, 405, 405), 225);
        assert_eq!(tokens(ImageRule::ClaudeSmall, 8000, 8000), 1568);
        assert_eq!(tokens(ImageRule::ClaudeLarge, 8000, 8000), 4784);
        let gpt_4o = ImageRule::Tiles { base: 85, tile: 170 };
        assert_eq!(tokens(gpt_4o, 1024, 1024), 765);
        assert_eq!(tokens(gpt_4o, 2048, 4096), 1105);
        assert_eq!(tokens(ImageRule::Tiles { base: 2833, tile: 5667 }, 1, 1), 8500);
        assert_eq!(tokens(ImageRule::Tiles { base: 70, tile: 140 }, 50, 50), 210);
        assert_eq!(tokens(ImageRule::Patches { percent: 246 }, 128, 128), 40);
        assert_eq!(tokens(ImageRule::Patches { percent: 162 }, 300, 346), 179);
    }

    #[test]
    fn an_unknown_size_is_the_largest_and_low_detail_the_base() {
        let gpt_4o = ImageRule::Tiles { base: 85, tile: 170 };
        let mut unknown = ImageSizes::default();
        unknown.add(None, false);
        assert_eq!(unknown.tokens(gpt_4o), 85 + 8 * 170);
        assert_eq!(unknown.tokens(ImageRule::ClaudeSmall), 1568);
        assert_eq!(unknown.tokens(ImageRule::Dearest), 10_000);
        let mut low = ImageSizes::default();
        low.add(Some(Dimensions { width: 4000, height: 3000 }), true);
        assert_eq!(low.tokens(gpt_4o), 85);
    }

    #[test]
    fn the_thinnest_image_still_has_a_pixel() {
        assert_eq!(tokens(ImageRule::ClaudeSmall, u32::MAX, 1), 56);
        assert_eq!(tokens(ImageRule::Tiles { base: 0, tile: 1 }, 1, u32::MAX), 4);
    }
}
