//! Maximum flow by Dinic's algorithm (1970).

/// More than any flow: larger than all times and priced bytes together.
pub(super) const UNLIMITED: u64 = 1 << 62;

struct Edge {
    to: u32,
    capacity: u64,
}

/// A network; edge `i ^ 1` is the reverse of edge `i`.
pub(super) struct Flow {
    edges: Vec<Edge>,
    from: Vec<Vec<u32>>,
    level: Vec<u32>,
    next: Vec<u32>,
    /// Edges that were looked at.
    pub(super) looks: usize,
}

const FAR: u32 = u32::MAX;

impl Flow {
    pub(super) fn new(nodes: usize) -> Flow {
        Flow {
            edges: Vec::new(),
            from: vec![Vec::new(); nodes],
            level: vec![FAR; nodes],
            next: vec![0; nodes],
            looks: 0,
        }
    }

    pub(super) fn edge(&mut self, a: usize, b: usize, capacity: u64) {
        self.from[a].push(self.edges.len() as u32);
        self.edges.push(Edge { to: b as u32, capacity });
        self.from[b].push(self.edges.len() as u32);
        self.edges.push(Edge { to: a as u32, capacity: 0 });
    }

    /// The largest flow; at most [`UNLIMITED`].
    pub(super) fn run(&mut self, source: usize, sink: usize) -> u64 {
        let mut total = 0u64;
        while total < UNLIMITED && self.levels(source, sink) {
            self.next.fill(0);
            while let Some(flow) = self.push_path(source, sink) {
                total = total.saturating_add(flow).min(UNLIMITED);
                if total == UNLIMITED {
                    break;
                }
            }
        }
        total
    }

    fn levels(&mut self, source: usize, sink: usize) -> bool {
        self.level.fill(FAR);
        self.level[source] = 0;
        let mut queue = vec![source];
        let mut head = 0;
        while head < queue.len() {
            let node = queue[head];
            head += 1;
            self.looks += self.from[node].len();
            for &e in &self.from[node] {
                let edge = &self.edges[e as usize];
                if edge.capacity > 0 && self.level[edge.to as usize] == FAR {
                    self.level[edge.to as usize] = self.level[node] + 1;
                    queue.push(edge.to as usize);
                }
            }
        }
        self.level[sink] != FAR
    }

    /// Pushes along one path of falling distance; `None` if there is none left.
    fn push_path(&mut self, source: usize, sink: usize) -> Option<u64> {
        let mut path: Vec<u32> = Vec::new();
        let mut node = source;
        while node != sink {
            let list = &self.from[node];
            self.looks += 1;
            let open = (self.next[node] as usize..list.len()).find(|&i| {
                let edge = &self.edges[list[i] as usize];
                edge.capacity > 0 && self.level[edge.to as usize] == self.level[node] + 1
            });
            match open {
                Some(i) => {
                    self.next[node] = i as u32;
                    path.push(list[i]);
                    node = self.edges[list[i] as usize].to as usize;
                }
                None => {
                    self.level[node] = FAR;
                    let back = path.pop()?;
                    node = self.edges[(back ^ 1) as usize].to as usize;
                }
            }
        }
        let flow = path.iter().map(|&e| self.edges[e as usize].capacity).min()?;
        for &e in &path {
            self.edges[e as usize].capacity -= flow;
            self.edges[(e ^ 1) as usize].capacity += flow;
        }
        Some(flow)
    }

    /// After `run`: the nodes that the source still reaches.
    pub(super) fn source_side(&mut self, source: usize) -> Vec<bool> {
        self.levels(source, source);
        self.level.iter().map(|&l| l != FAR).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_flow_is_the_cut() {
        // Cormen et al., figure 26.1: 23.
        let mut f = Flow::new(6);
        let edges =
            [(0, 1, 16), (0, 2, 13), (1, 3, 12), (2, 1, 4), (3, 2, 9), (2, 4, 14), (4, 3, 7), (3, 5, 20), (4, 5, 4)];
        edges.into_iter().for_each(|(a, b, c)| f.edge(a, b, c));
        assert_eq!(f.run(0, 5), 23);
        let side = f.source_side(0);
        let cut: u64 = edges.iter().filter(|(a, b, _)| side[*a] && !side[*b]).map(|e| e.2).sum();
        assert_eq!(cut, 23);
    }

    #[test]
    fn no_limit_is_no_overflow() {
        let mut f = Flow::new(3);
        f.edge(0, 1, UNLIMITED);
        f.edge(0, 1, UNLIMITED);
        f.edge(1, 2, UNLIMITED);
        f.edge(1, 2, UNLIMITED);
        assert_eq!(f.run(0, 2), UNLIMITED);
    }
}
