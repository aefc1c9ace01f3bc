// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package cpus

import (
	"math"
	"slices"

	"github.com/seed81659283/nodeagent/cgroups/topology"
)

// maxTried is the maximum number of distributions that a search compares. A larger search is replaced by a search in linear
// time of the number of NUMA nodes.
const maxTried = 1 << 16

// takeSpread takes n CPUs in equal shares from as few NUMA nodes as possible, so that the remaining free CPUs are balanced.
// CPUs that cannot be divided equally come in groups from some of these nodes.
func (l *Layout) takeSpread(free topology.CPUSet, n int, opts Options) (topology.CPUSet, error) {
	group := 1
	if opts.WholeCores {
		group = l.perCore
	}
	packed := opts
	packed.AlignCaches = false
	if n%group != 0 || n < 1 {
		return l.takePacked(free, n, packed)
	}
	if count := free.Len(); n > count {
		return topology.CPUSet{}, shortError(n, count)
	}
	s := newSpread(l, free, n, group, opts.AlignSocket)
	for k := s.fewest; k <= s.most; k++ {
		if best := s.find(k); best != nil {
			return l.takeShares(free, best, n, group, packed)
		}
	}
	return l.takePacked(free, n, packed)
}

// spread is the search for a distribution of CPUs to NUMA nodes.
type spread struct {
	layout       *Layout
	n, group     int     // CPUs to distribute, in groups
	alignSocket  bool    // distributions within a socket are better than others
	nodes        []int16 // NUMA nodes with free CPUs, in the order in which they are used up
	free         []int   // number of free CPUs of these nodes
	fewest, most int     // numbers of NUMA nodes to try
}

func newSpread(l *Layout, free topology.CPUSet, n, group int, alignSocket bool) *spread {
	var small smallScratch
	t := newTaking(l, free, n, &small)
	s := &spread{layout: l, n: n, group: group, alignSocket: alignSocket, nodes: slices.Clone(t.sortNodes())}
	for _, node := range s.nodes {
		s.free = append(s.free, int(t.nodeCounts[node]))
	}
	groups := (n-1)/group + 1
	perNode := ((l.all.Len()-1)/group)/len(l.nodes.ids) + 1 // groups of an average node, rounded up
	s.fewest, s.most = (groups-1)/perNode+1, min(groups, len(s.nodes))
	return s
}

// distribution is a choice of NUMA nodes, with the number of CPUs that each of these nodes gives.
type distribution struct {
	nodes   []int16
	share   int     // CPUs that each node gives
	order   []int   // positions in nodes of those that give more, a group in each turn
	balance float64 // standard deviation of the free CPUs left on all nodes; smaller is better
	socket  bool    // all nodes are in one socket; considered with align-by-socket only
}

// isBetter reports whether d is better than the distribution other; nil is worse than any. With align-by-socket, a distribution
// in one socket is better. Otherwise the smaller balance is better.
func (d *distribution) isBetter(other *distribution) bool {
	switch {
	case other == nil:
		return true
	case d.socket != other.socket:
		return d.socket
	}
	return d.balance < other.balance
}

// find returns the best distribution over k NUMA nodes, or nil if there is none.
func (s *spread) find(k int) (best *distribution) {
	if s.countDistributions(k) > maxTried {
		return s.findGreedy(k)
	}
	visitCombinations(len(s.nodes), k, func(combination []int) bool {
		if best != nil && best.balance == 0 && (!s.alignSocket || best.socket) {
			return false
		}
		if d := s.distribute(combination, s.findRemainder); d != nil && d.isBetter(best) {
			best = d
		}
		return true
	})
	return best
}

// countDistributions returns the number of distributions over k NUMA nodes: all combinations of nodes, and all their subsets if there is a remainder.
// Numbers above maxTried are not exact.
func (s *spread) countDistributions(k int) int {
	count := 1.0
	for i := range k {
		count = count * float64(len(s.nodes)-i) / float64(i+1)
	}
	if s.alignSocket || s.n/s.group%k != 0 {
		count = math.Ldexp(count, k)
	}
	return int(min(count, 2*maxTried))
}

// visitCombinations calls visit with each combination of k numbers from 0 to m-1, in lexical order, until visit returns false.
// visit must not keep its argument.
func visitCombinations(m, k int, visit func([]int) bool) {
	if k < 1 || k > m {
		return
	}
	chosen := make([]int, k)
	for i := range chosen {
		chosen[i] = i
	}
	for {
		if !visit(chosen) {
			return
		}
		i := k - 1
		for i >= 0 && chosen[i] == m-k+i {
			i--
		}
		if i < 0 {
			return
		}
		for chosen[i]++; i+1 < k; i++ {
			chosen[i+1] = chosen[i] + 1
		}
	}
}

// distribute divides the s.n CPUs equally among the NUMA nodes at positions, which are indexes in s.nodes. It returns nil if
// these nodes have too few free CPUs.
//
// If a remainder is left, the function findRemainder chooses the nodes that give these CPUs. Its argument left has the free
// CPUs of each node after the equal share. It returns false if the nodes cannot give the remainder.
func (s *spread) distribute(positions []int, findRemainder func(d *distribution, left, positions []int, remainder int) bool) *distribution {
	total, groups := 0, 0
	for _, p := range positions {
		total += s.free[p]
		groups += s.free[p] / s.group
	}
	if total < s.n || groups*s.group < s.n {
		return nil
	}
	d := &distribution{share: s.n / len(positions) / s.group * s.group}
	if s.alignSocket {
		for _, p := range positions {
			d.share = min(d.share, s.free[p]/s.group*s.group)
		}
	}
	left := slices.Clone(s.free)
	for _, p := range positions {
		if s.free[p] < d.share {
			return nil
		}
		left[p] -= d.share
		d.nodes = append(d.nodes, s.nodes[p])
	}
	d.socket = s.alignSocket && s.isOneSocket(d.nodes)
	remainder := s.n - d.share*len(positions)
	if !findRemainder(d, left, positions, remainder) {
		return nil
	}
	return d
}

// isOneSocket reports whether all CPUs of the nodes are in one socket.
func (s *spread) isOneSocket(nodes []int16) bool {
	first := s.layout.socketsOfNode[nodes[0]]
	return len(first) == 1 && !slices.ContainsFunc(nodes, func(n int16) bool { return !slices.Equal(s.layout.socketsOfNode[n], first) })
}

// findRemainder chooses which nodes give the remaining CPUs; see distribute. It tries all subsets of the nodes at positions,
// the largest subsets first. It stores the best subset in d.order and the resulting balance in d.balance.
func (s *spread) findRemainder(d *distribution, left, positions []int, remainder int) bool {
	if remainder == 0 {
		d.balance = computeDeviation(left)
		return true
	}
	var able []int // indexes in positions of the nodes that can give another group
	for i, p := range positions {
		if left[p] >= s.group {
			able = append(able, i)
		}
	}
	d.balance = math.MaxFloat64
	rest := make([]int, len(left))
	for size := len(able); size >= 1; size-- {
		visitCombinations(len(able), size, func(subset []int) bool {
			copy(rest, left)
			if !s.giveRemainder(rest, positions, able, subset, remainder) {
				return true
			}
			if balance := computeDeviation(rest); balance < d.balance {
				d.balance, d.order = balance, d.order[:0]
				for _, i := range subset {
					d.order = append(d.order, able[i])
				}
			}
			return true
		})
	}
	return d.order != nil
}

// giveRemainder subtracts the remaining CPUs from rest, the free CPUs of each node. Each node of subset gives one group in
// turn. subset contains indexes in able, which contains indexes in positions. It returns false if the nodes have too few
// groups.
func (s *spread) giveRemainder(rest, positions, able, subset []int, remainder int) bool {
	for remainder > 0 {
		before := remainder
		for _, i := range subset {
			if p := positions[able[i]]; remainder > 0 && rest[p] >= s.group {
				rest[p] -= s.group
				remainder -= s.group
			}
		}
		if remainder == before {
			return false
		}
	}
	return true
}

// findGreedy returns a distribution over the k NUMA nodes with the most free CPUs, or nil if these nodes have too few. If
// s.alignSocket is true, it prefers k nodes of one socket. The CPUs that the division leaves over come from the nodes with the
// most free CPUs.
func (s *spread) findGreedy(k int) (best *distribution) {
	sets := [][]int{s.findFullest(k, func(int16) bool { return true })}
	if s.alignSocket {
		for socket := range s.layout.sockets.ids {
			sets = append(sets, s.findFullest(k, func(n int16) bool { return slices.Contains(s.layout.nodesOfSocket[socket], n) }))
		}
	}
	for _, positions := range sets {
		if len(positions) < k {
			continue
		}
		if d := s.distribute(positions, s.giveFromFullest); d != nil && d.isBetter(best) {
			best = d
		}
	}
	return best
}

// findFullest returns the indexes in s.nodes of the k nodes with the most free CPUs, in ascending order. It considers only nodes
// for which matches returns true, and returns fewer indexes if fewer nodes match.
func (s *spread) findFullest(k int, matches func(int16) bool) (positions []int) {
	for p, n := range s.nodes {
		if matches(n) {
			positions = append(positions, p)
		}
	}
	slices.SortStableFunc(positions, func(a, b int) int { return s.free[b] - s.free[a] })
	positions = positions[:min(k, len(positions))]
	slices.Sort(positions)
	return positions
}

// giveFromFullest chooses which nodes give the remaining CPUs; see distribute. Each group of CPUs comes from the node with the
// most free CPUs. It sets d.order and d.balance.
func (s *spread) giveFromFullest(d *distribution, left, positions []int, remainder int) bool {
	for remainder > 0 {
		at := 0
		for i, p := range positions {
			if left[p] > left[positions[at]] {
				at = i
			}
		}
		if left[positions[at]] < s.group {
			return false
		}
		left[positions[at]] -= s.group
		remainder -= s.group
		d.order = append(d.order, at)
	}
	d.balance = computeDeviation(left)
	return true
}

// computeDeviation returns the standard deviation of the numbers. Mean and result are rounded to three digits, as in the kubelet.
func computeDeviation(numbers []int) float64 {
	sum := 0.0
	for _, n := range numbers {
		sum += float64(n)
	}
	mean := round(sum / float64(len(numbers)))
	sum = 0
	for _, n := range numbers {
		sum += (float64(n) - mean) * (float64(n) - mean)
	}
	return round(math.Sqrt(sum / float64(len(numbers))))
}

func round(x float64) float64 { return math.Round(x*1000) / 1000 }

// takeShares takes n CPUs from free as d plans: first the equal share of each node, and then one group of each node in d.order
// in turn.
func (l *Layout) takeShares(free topology.CPUSet, d *distribution, n, group int, opts Options) (taken topology.CPUSet, err error) {
	left := free
	take := func(node int16, count int) error {
		here := left.Intersect(l.nodes.sets[node])
		part, err := l.takePacked(here, count, opts)
		if err != nil {
			return err
		}
		taken, left = taken.Union(part), left.Minus(part)
		return nil
	}
	for _, node := range d.nodes {
		if err := take(node, d.share); err != nil {
			return topology.CPUSet{}, err
		}
	}
	for count := n - d.share*len(d.nodes); count > 0; {
		for _, at := range d.order {
			if here := left.CountCommon(l.nodes.sets[d.nodes[at]]); count <= 0 || here < group {
				continue
			}
			if err := take(d.nodes[at], group); err != nil {
				return topology.CPUSet{}, err
			}
			count -= group
		}
	}
	return taken, nil
}
