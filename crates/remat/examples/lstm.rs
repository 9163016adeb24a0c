//! A language model of characters: an embedding, an LSTM and a linear layer, trained on pieces of a text whose states are handed
//! on, and then asked to go on by itself.

use remat::nn::{Embedding, InitCx, Linear, Lstm, loss};
use remat::prelude::*;

const TEXT: &str = "the quick brown fox jumps over the lazy dog and the slow brown cow sleeps under the hazy fog; ";
const HIDDEN: usize = 48;
const STEPS: usize = 16;

#[derive(Module)]
struct Model {
    embedding: Embedding,
    lstm: Lstm,
    head: Linear,
}

/// `[h, c]` of the LSTM.
type State = [Tensor; 2];

impl Model {
    fn new(cx: &mut InitCx, letters: usize) -> Result<Model> {
        Ok(Model {
            embedding: Embedding::new(cx, letters, 16)?,
            lstm: Lstm::new(cx, 16, HIDDEN)?,
            head: Linear::new(cx, HIDDEN, letters)?,
        })
    }

    /// Logits `[steps, batch, letters]` of what follows each of `letters: [steps, batch]`, and the state behind the last.
    fn forward(&self, letters: &Tensor, state: &State) -> Result<(Tensor, State)> {
        let x = self.embedding.forward(letters)?;
        let (y, state) = self.lstm.forward_with(&x, Some([&state[0], &state[1]]), None)?;
        Ok((self.head.forward(&y)?, state))
    }
}

fn start(device: &Device, batch: usize) -> Result<State> {
    let zero = || Tensor::zeros(device, [1, batch, HIDDEN], DType::F32);
    Ok([zero()?, zero()?])
}

/// Goes on from a beginning, one letter at a time, each time with the likeliest.
fn write(model: &Model, device: &Device, alphabet: &[char], beginning: &str, letters: usize) -> Result<String> {
    let _quiet = no_grad();
    let number = |c: char| alphabet.iter().position(|a| *a == c).unwrap_or(0) as i64;
    let (mut state, mut text, mut next) = (start(device, 1)?, beginning.to_owned(), 0);
    let read = |state: &State, c: i64| -> Result<(i64, State)> {
        let (logits, state) = model.forward(&Tensor::new(device, &[c], [1, 1])?, state)?;
        Ok((logits.argmax()?.item::<i64>()?, state))
    };
    for c in beginning.chars() {
        (next, state) = read(&state, number(c))?;
    }
    for _ in 0..letters {
        text.push(alphabet[next as usize]);
        (next, state) = read(&state, next)?;
    }
    Ok(text)
}

fn main() -> Result<()> {
    let device = Device::cpu(DeviceOptions::with_budget(4 << 20))?;
    let mut alphabet: Vec<char> = TEXT.chars().collect();
    alphabet.sort_unstable();
    alphabet.dedup();
    let numbers: Vec<i64> = TEXT.chars().filter_map(|c| Some(alphabet.iter().position(|a| *a == c)? as i64)).collect();

    let model = Model::new(&mut InitCx::new(&device, 1), alphabet.len())?;
    let mut adam = nn::AdamW::new(model.named_parameters(), nn::AdamWOptions { lr: 0.01, ..Default::default() })?;
    // four readers begin at different places of the text, which has no end
    let readers = 4;
    let letter = |at: usize| numbers[at % numbers.len()];
    let mut state = start(&device, readers)?;
    let mut losses = Vec::new();
    for piece in 0..150 {
        let at = |step: usize, reader: usize| letter(reader * numbers.len() / readers + piece * STEPS + step);
        let piece = |shift: usize| -> Vec<i64> {
            (0..STEPS).flat_map(|s| (0..readers).map(move |r| (s, r))).map(|(s, r)| at(s + shift, r)).collect()
        };
        let x = Tensor::new(&device, &piece(0), [STEPS, readers])?;
        let target = Tensor::new(&device, &piece(1), [STEPS * readers])?;
        let (logits, last) = model.forward(&x, &state)?;
        let loss = loss::cross_entropy(&logits.flatten(0, 1)?, &target)?;
        loss.backward()?;
        nn::clip_grad_norm(&model.parameters(), 1.0)?;
        adam.step()?;
        state = last.map(|s| s.detach()); // the next piece begins here, and no gradient comes back
        losses.push(loss.item::<f32>()?);
    }
    println!("loss {:.2} at first, {:.2} at last", losses[0], losses[149]);
    println!("{}", write(&model, &device, &alphabet, "the ", 60)?);
    assert!(losses[149] < 0.5 && losses[149] < losses[0]);
    Ok(())
}
