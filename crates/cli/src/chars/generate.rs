//! `remat generate`: a text goes on as the network of a checkpoint would write it.

use std::path::PathBuf;
use std::time::Instant;

use clap::Args;
use remat::nn::models::Gpt;
use remat::nn::{Checkpoint, InitCx, KvCache, Layer, Module, Rng, Sampler};
use remat::runtime::{Device, DeviceOptions};
use remat::tensor::Tensor;
use remat::types::{Error, ErrorKind, Result};
use serde_json::json;

use super::data::Text;
use super::{CharsTask, Task};
use crate::budget::MemoryBudget;
use crate::output::{self, note};
use crate::train::Settings;
use crate::{interrupt, sizes};

/// Examples:
///   remat train chars --save novel && remat generate novel --prompt "It is a truth"
///   remat generate novel --tokens 1000 --temperature 0.7 --top-p 0.9 --seed 3
///   remat generate novel --temperature 0 --memory-budget 8MiB
#[derive(Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Options {
    /// Folder of a checkpoint that `remat train chars --save` wrote
    dir: PathBuf,
    /// The text that goes on; its characters occur in the novel
    #[arg(long, default_value = "\n", hide_default_value = true)]
    prompt: String,
    /// Characters to write
    #[arg(long, default_value_t = 400, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    tokens: u32,
    /// Below 1 likely characters are drawn more often, above 1 less; 0 takes the likeliest one
    #[arg(long, default_value_t = 0.8)]
    temperature: f64,
    /// Draw among the K likeliest characters only
    #[arg(long, value_name = "K")]
    top_k: Option<usize>,
    /// Draw among the likeliest characters only that together have this probability
    #[arg(long, value_name = "P")]
    top_p: Option<f64>,
    /// Draw among characters only with this share of the likeliest one's probability
    #[arg(long, value_name = "P")]
    min_p: Option<f64>,
    /// Above 1, characters of the text so far are drawn less often
    #[arg(long, default_value_t = 1.0, value_name = "FACTOR")]
    repetition_penalty: f64,
    /// Seed of the draws: the same seed gives the same text
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Most memory the device may use, such as `8MiB`; `unlimited` or a size
    #[arg(long, default_value = "unlimited", value_name = "BUDGET", allow_hyphen_values = true)]
    memory_budget: MemoryBudget,
    /// Compute threads [default: the number of cores]
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..=1024))]
    threads: Option<u16>,
    /// Compute all characters again for each one instead of keeping their keys and values: to compare
    #[arg(long)]
    no_cache: bool,
    /// Write the text and figures as JSON instead of streaming the text; `-` is standard output
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

impl Options {
    fn sampler(&self) -> Sampler {
        Sampler {
            temperature: self.temperature,
            top_k: self.top_k,
            top_p: self.top_p,
            min_p: self.min_p,
            repetition_penalty: self.repetition_penalty,
        }
    }
}

/// Runs the command. Errors: Io and Format for the checkpoint; Value for options; Budget.
pub(crate) fn run(o: &Options) -> Result<()> {
    let checkpoint = Checkpoint::load(&o.dir)?;
    let settings = Settings::of_checkpoint::<CharsTask>(&checkpoint)?;
    let task = CharsTask::new(&settings.model)?;
    let prompt = tokens_of(&task.text, &o.prompt)?;
    let budget = o.memory_budget.bytes(|| {
        let text = "a share of a peak is of a training run; give a size such as 8MiB";
        Err::<usize, _>(Error::new(ErrorKind::Value, text))
    })?;
    let mut options = DeviceOptions { budget_bytes: budget, ..DeviceOptions::default() };
    options.threads = o.threads.map_or(options.threads, usize::from);
    interrupt::install();
    let device = Device::cpu(options)?;
    let net = task.net(&mut InitCx::new(&device, settings.seed))?;
    checkpoint.restore(&net, None)?;
    drop(checkpoint);
    net.set_training(false);
    let mut writer = Writer::new(&net, &device, o, settings.model.context)?;
    let streams = o.json.is_none();
    if streams {
        output::print(&o.prompt);
        output::flush();
    }
    let start = Instant::now();
    let mut tokens = prompt;
    let given = tokens.len();
    for _ in 0..o.tokens {
        if interrupt::requested() {
            break;
        }
        let next = writer.next(&tokens)?;
        tokens.push(next);
        if streams {
            output::print(&task.text.decode(&[next]));
            output::flush();
        }
    }
    let (written, seconds) = (tokens.len() - given, start.elapsed().as_secs_f64());
    let stats = device.channel().stats()?;
    let rate = written as f64 / seconds.max(1e-9);
    if streams {
        output::print("\n");
        let budget = budget.map_or_else(|| "without a budget".to_owned(), |b| format!("of {}", sizes::show(b)));
        note!("{written} characters, {rate:.0} a second; peak memory {} {budget}", sizes::show(stats.peak_bytes));
    }
    let Some(path) = &o.json else { return Ok(()) };
    let text = json!({
        "prompt": o.prompt,
        "text": task.text.decode(&tokens[given..]),
        "tokens": written,
        "seed": o.seed,
        "cached": !o.no_cache,
        "tokens_per_s": rate,
        "peak_bytes": stats.peak_bytes,
        "budget_bytes": budget,
    });
    output::write(path, format!("{text}\n"))
}

/// The tokens of a text. Errors: Value for no text, and for a character that the network does not know.
fn tokens_of(text: &Text, prompt: &str) -> Result<Vec<u8>> {
    if prompt.is_empty() {
        return Err(Error::new(ErrorKind::Value, "an empty prompt: give a character at least"));
    }
    let token = |c: char| {
        let known = u8::try_from(c).ok().filter(|b| text.vocabulary().contains(b));
        known.map(|b| text.token(b)).ok_or_else(|| {
            let all: String = text.vocabulary().iter().map(|b| char::from(*b)).filter(|c| !c.is_control()).collect();
            Error::new(
                ErrorKind::Value,
                format!("the prompt has {c:?}, which the network does not know; it knows {all}"),
            )
        })
    };
    prompt.chars().map(token).collect()
}

/// The sampler of the next character.
struct Writer<'a> {
    net: &'a Gpt,
    device: &'a Device,
    sampler: Sampler,
    rng: Rng,
    caches: Option<Vec<KvCache>>,
    context: usize,
}

impl<'a> Writer<'a> {
    fn new(net: &'a Gpt, device: &'a Device, o: &Options, context: usize) -> Result<Writer<'a>> {
        let caches = if o.no_cache { None } else { Some(net.caches(1)?) };
        Ok(Writer { net, device, sampler: o.sampler(), rng: Rng::new(o.seed), caches, context })
    }

    /// The character behind `tokens`.
    fn next(&mut self, tokens: &[u8]) -> Result<u8> {
        let seen = self.window(tokens);
        let put = |t: &[u8]| Tensor::new(self.device, t, [1, t.len()]);
        let logits = match &self.caches {
            None => self.net.forward(&put(seen)?)?,
            Some(caches) => {
                let kept = caches.first().map_or(0, KvCache::len);
                // what the caches hold is the front of the window, or of one before it
                let kept = if kept < seen.len() && self.is_front(tokens, kept) { kept } else { 0 };
                caches.iter().try_for_each(|c| c.truncate(kept))?;
                self.net.forward_cached(&put(&seen[kept..])?, caches)?
            }
        };
        let last = logits.select(1, -1)?;
        let tokens: Vec<i64> = seen.iter().map(|t| i64::from(*t)).collect();
        let there = Tensor::new(self.device, &tokens, [1, tokens.len()])?;
        let key = self.rng.next_key(self.device)?;
        let next = self.sampler.draw(&last, Some(&there), &key)?.to_vec::<i64>()?;
        u8::try_from(next[0]).map_err(|_| Error::new(ErrorKind::Internal, format!("token {} of 256", next[0])))
    }

    /// The characters that the network sees: all, and once those are too many, windows that begin half a context apart, so that
    /// the cache is rarely discarded.
    fn window<'t>(&self, tokens: &'t [u8]) -> &'t [u8] {
        &tokens[window_start(tokens.len(), self.context)..]
    }

    /// Whether `kept` characters of the window were there at the last step: the window did not move.
    fn is_front(&self, tokens: &[u8], kept: usize) -> bool {
        kept > 0 && window_start(tokens.len(), self.context) == window_start(tokens.len() - 1, self.context)
    }
}

/// Where the window of a text of `len` characters begins.
fn window_start(len: usize, context: usize) -> usize {
    let step = (context / 2).max(1);
    len.saturating_sub(context).div_ceil(step) * step
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_begin_half_a_context_apart_and_hold_no_more_than_one() {
        for context in [2, 3, 8, 9] {
            for len in 1..60 {
                let start = window_start(len, context);
                assert!(start < len && len - start <= context && start.is_multiple_of((context / 2).max(1)), "{len}");
                assert!(
                    len <= context || len - start >= context - context / 2 - usize::from(context % 2 == 1),
                    "{len}"
                );
            }
        }
    }

    #[test]
    fn a_prompt_of_other_characters_is_refused_and_says_which() {
        let text = super::super::data::load().expect("ships with the repository");
        assert_eq!(tokens_of(&text, "q").expect("known"), [text.token(b'q')]);
        for (prompt, what) in [("", "empty"), ("caf\u{e9}", "'\u{e9}'"), ("a\u{1}", "'\\u{1}'")] {
            let e = tokens_of(&text, prompt).expect_err("refused").to_string();
            assert!(e.contains(what), "{prompt:?}: {e}");
        }
    }
}
