//! Capture of streams into graphs, and their replay.
//!
//! A capture begins on one stream. Other streams join it when they wait for an event that was recorded in it, and they must
//! be joined back before it ends. Waits for the device are refused to the thread that began a capture and to no other, as in
//! the mode `CU_STREAM_CAPTURE_MODE_THREAD_LOCAL`. A node of the graph is a piece of work and the nodes before it. A launch
//! gives nodes that follow each other to the launching stream, and other branches to internal streams, so their order is
//! drawn, too.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::thread::ThreadId;

use super::Device;
use super::error::{CudaError, ErrorCode, Outcome};
use super::order::{Clock, place};
use super::queue::Work;
use super::streams::{Stream, StreamState};

/// A graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Graph(pub u32);

/// A graph that can be launched.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct GraphExec(pub u32);

/// A piece of work and the numbers of the nodes before it.
#[derive(Clone, Debug)]
pub(super) struct Node {
    work: Work,
    after: Vec<usize>,
}

#[derive(Debug)]
struct Capture {
    origin: usize,
    /// The thread that began it.
    thread: ThreadId,
    nodes: Vec<Node>,
    is_invalid: bool,
}

#[derive(Debug, Default)]
pub(super) struct Captures {
    all: Vec<Option<Capture>>,
    /// For each stream in a capture: the capture, and the nodes that come before the stream's next one.
    streams: BTreeMap<usize, (usize, Vec<usize>)>,
}

impl Captures {
    /// The capture that a stream is in, and the nodes before its next one.
    pub(super) fn at(&self, stream: usize) -> Option<(usize, &[usize])> {
        self.streams.get(&stream).map(|(capture, nodes)| (*capture, &nodes[..]))
    }

    /// Adds a node behind those of a stream that is in a capture.
    pub(super) fn add(&mut self, stream: usize, work: Work) {
        let Some((capture, before)) = self.streams.get_mut(&stream) else { return };
        if let Some(Some(capture)) = self.all.get_mut(*capture) {
            capture.nodes.push(Node { work, after: std::mem::take(before) });
            before.push(capture.nodes.len() - 1);
        }
    }
}

impl Device {
    /// Errors if a stream is in a capture, which becomes invalid.
    pub(super) fn refuse_in_capture(&mut self, stream: usize, call: &str) -> Outcome<()> {
        let Some((capture, _)) = self.captures.at(stream) else { return Ok(()) };
        if let Some(Some(capture)) = self.captures.all.get_mut(capture) {
            capture.is_invalid = true;
        }
        let message = format!("{call} is not possible while stream {stream} is captured");
        Err(CudaError::new(ErrorCode::CaptureUnsupported, message))
    }

    /// Errors if this thread has begun a capture, which becomes invalid.
    pub(super) fn refuse_in_any_capture(&mut self, call: &str) -> Outcome<()> {
        let thread = std::thread::current().id();
        let is_here = |c: usize| self.captures.all[c].as_ref().is_some_and(|c| c.thread == thread);
        let found = self.captures.streams.iter().find(|(_, (c, _))| is_here(*c)).map(|(stream, _)| *stream);
        found.map_or(Ok(()), |stream| self.refuse_in_capture(stream, call))
    }

    /// `cuStreamBeginCapture`: from now on the work of the stream becomes nodes of a graph and does not run.
    pub fn stream_begin_capture(&mut self, stream: Stream) -> Outcome<()> {
        self.alive()?;
        let origin = self.stream(stream)?;
        if origin < self.devices() || self.captures.at(origin).is_some() {
            let message = "the default stream, and one in a capture, cannot be captured";
            return Err(CudaError::new(ErrorCode::CaptureUnsupported, message));
        }
        let thread = std::thread::current().id();
        self.captures.all.push(Some(Capture { origin, thread, nodes: Vec::new(), is_invalid: false }));
        self.captures.streams.insert(origin, (self.captures.all.len() - 1, Vec::new()));
        Ok(())
    }

    /// `cuStreamIsCapturing`.
    pub fn stream_is_capturing(&self, stream: Stream) -> Outcome<bool> {
        Ok(self.captures.at(self.stream(stream)?).is_some())
    }

    /// A stream waits for an event that was recorded in a capture, and so is in it.
    pub(super) fn join_capture(&mut self, stream: usize, capture: usize, nodes: &[usize]) -> Outcome<()> {
        if !matches!(self.captures.all.get(capture), Some(Some(_))) {
            let message = "the event was recorded in a capture that has ended";
            return Err(CudaError::new(ErrorCode::CapturedEvent, message));
        }
        let (found, before) = self.captures.streams.entry(stream).or_insert((capture, Vec::new()));
        if *found != capture {
            return Err(CudaError::new(ErrorCode::CaptureInvalidated, "the stream is in another capture"));
        }
        before.extend(nodes.iter().filter(|n| !before.contains(n)).copied().collect::<Vec<_>>());
        Ok(())
    }

    /// `cuStreamEndCapture`. Errors: the stream did not begin one, a call was not possible, or another stream was not joined.
    pub fn stream_end_capture(&mut self, stream: Stream) -> Outcome<Graph> {
        self.alive()?;
        let origin = self.stream(stream)?;
        let found = self.captures.at(origin).map(|(capture, _)| capture);
        let begun = found.filter(|&c| self.captures.all[c].as_ref().is_some_and(|c| c.origin == origin));
        let Some(number) = begun else {
            return Err(CudaError::new(ErrorCode::CaptureUnmatched, "the stream did not begin a capture"));
        };
        let Some(capture) = self.captures.all[number].take() else {
            return Err(CudaError::new(ErrorCode::CaptureUnmatched, "the capture has ended"));
        };
        let ends = self.captures.streams.remove(&origin).map_or(Vec::new(), |(_, nodes)| nodes);
        let joined = ancestors(&capture.nodes, &ends);
        let others: Vec<usize> =
            self.captures.streams.iter().filter(|(_, (c, _))| *c == number).map(|(s, _)| *s).collect();
        let mut unjoined = None;
        for other in others {
            let (_, nodes) = self.captures.streams.remove(&other).unwrap_or_default();
            unjoined = unjoined.or(nodes.iter().any(|n| !joined[*n]).then_some(other));
        }
        if capture.is_invalid {
            return Err(CudaError::new(ErrorCode::CaptureInvalidated, "a call was not possible during the capture"));
        }
        if let Some(other) = unjoined {
            let message = format!("the capture ends before stream {other} is joined");
            return Err(CudaError::new(ErrorCode::CaptureUnjoined, message));
        }
        self.graphs.push(Some(Arc::new(capture.nodes)));
        Ok(Graph(self.graphs.len() as u32 - 1))
    }

    /// `cuGraphInstantiate`.
    pub fn graph_instantiate(&mut self, graph: Graph) -> Outcome<GraphExec> {
        self.alive()?;
        let Some(Some(nodes)) = self.graphs.get(graph.0 as usize) else { return Err(no_graph()) };
        self.execs.push(Some(Arc::clone(nodes)));
        Ok(GraphExec(self.execs.len() as u32 - 1))
    }

    /// `cuGraphDestroy`.
    pub fn graph_destroy(&mut self, graph: Graph) -> Outcome<()> {
        self.graphs.get_mut(graph.0 as usize).and_then(Option::take).map(|_| ()).ok_or_else(no_graph)
    }

    /// `cuGraphExecDestroy`.
    pub fn graph_exec_destroy(&mut self, exec: GraphExec) -> Outcome<()> {
        self.execs.get_mut(exec.0 as usize).and_then(Option::take).map(|_| ()).ok_or_else(no_graph)
    }

    /// `cuGraphLaunch`: queues all nodes of a graph on a stream.
    pub fn graph_launch(&mut self, exec: GraphExec, stream: Stream) -> Outcome<()> {
        self.alive()?;
        let stream = self.stream(stream)?;
        self.refuse_in_capture(stream, "the launch of a graph")?;
        let Some(Some(nodes)) = self.execs.get(exec.0 as usize) else { return Err(no_graph()) };
        let nodes = Arc::clone(nodes);
        // Branches begin where the launching stream is now.
        let begin = {
            self.queue(stream, Work::Host(Arc::new(|| ())));
            self.streams[stream].clock.clone()
        };
        let mut clocks: Vec<Clock> = Vec::new();
        // The stream of each node, and the last node on each stream.
        let mut places: Vec<usize> = Vec::new();
        let mut last: BTreeMap<usize, usize> = BTreeMap::new();
        for (n, node) in nodes.iter().enumerate() {
            let follows = |s: &usize| last.get(s).is_some_and(|l| node.after.contains(l));
            let place_of_node = match places.iter().find(|s| follows(s)) {
                Some(&s) => s,
                None if !last.contains_key(&stream) => stream,
                None => self.internal_stream(self.streams[stream].device),
            };
            let mut before = begin.clone();
            node.after.iter().for_each(|a| before.join(&clocks[*a]));
            self.streams[place_of_node].clock.join(&before);
            self.queue(place_of_node, node.work.clone());
            let mut clock = before;
            clock.set(place(place_of_node), self.streams[place_of_node].next - 1);
            clocks.push(clock);
            places.push(place_of_node);
            last.insert(place_of_node, n);
        }
        clocks.iter().for_each(|clock| self.streams[stream].clock.join(clock));
        Ok(())
    }

    /// An internal stream without work. Using one again orders its old work before the new, which may hide a race between
    /// the two and never invents one.
    fn internal_stream(&mut self, device: usize) -> usize {
        let is_free = |s: &StreamState| s.is_internal && s.queue.is_empty() && s.device == device;
        if let Some(found) = self.streams.iter().position(is_free) {
            return found;
        }
        let mut state = StreamState::new(device, false, self.host.clone());
        state.is_internal = true;
        self.streams.push(state);
        self.streams.len() - 1
    }
}

fn no_graph() -> CudaError {
    CudaError::new(ErrorCode::InvalidHandle, "the graph does not exist")
}

/// For each node, whether it is one of `ends` or before one of them.
fn ancestors(nodes: &[Node], ends: &[usize]) -> Vec<bool> {
    let mut is_before = vec![false; nodes.len()];
    ends.iter().for_each(|&n| is_before[n] = true);
    for n in (0..nodes.len()).rev() {
        if is_before[n] {
            nodes[n].after.iter().for_each(|&a| is_before[a] = true);
        }
    }
    is_before
}
