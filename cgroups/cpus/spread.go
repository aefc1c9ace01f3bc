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
	var scratch spreadScratch
	s := newSpread(l, free, n, group, &scratch)
	s.alignSocket = opts.AlignSocket
	for k := s.fewest; k <= s.most; k++ {
		if s.findBest(k) {
			return s.takeShares(free, packed)
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

	best distribution // the best one so far
	next distribution // the one that is compared with best

	// Buffers with an element for each of the nodes: positions is for find and findGreedy, the others are for findRemainder.
	positions, able, subset, left, rest []int
}

// stackNodes is the number of NUMA nodes, and of sockets, up to which a search has its slices on the stack.
const stackNodes = 64

// spreadScratch has the memory of the slices of a spread.
type spreadScratch struct {
	numbers [8 * stackNodes]int
	units   [4 * stackNodes]int16
}

func newSpread(l *Layout, free topology.CPUSet, n, group int, scratch *spreadScratch) spread {
	numbers, units := scratch.numbers[:], scratch.units[:]
	if count := max(len(l.nodes.ids), len(l.sockets.ids)); count > stackNodes {
		numbers, units = make([]int, 8*count), make([]int16, 4*count)
	}
	s := spread{layout: l, n: n, group: group, nodes: l.listFreeNodes(free, units)}
	part := func() (p []int) {
		count := len(s.nodes)
		p, numbers = numbers[:count:count], numbers[count:]
		return p
	}
	s.free, s.best.left, s.next.left = part(), part(), part()
	s.positions, s.able, s.subset, s.left, s.rest = part(), part(), part(), part(), part()
	for i, node := range s.nodes {
		s.free[i] = free.CountCommon(l.nodes.sets[node])
	}
	groups := (n-1)/group + 1
	perNode := ((l.all.Len()-1)/group)/len(l.nodes.ids) + 1 // groups of an average node, rounded up
	s.fewest, s.most = (groups-1)/perNode+1, min(groups, len(s.nodes))
	return s
}

// listFreeNodes returns the NUMA nodes with free CPUs in the order in which they are used up. The list is in units, which has four numbers for each
// NUMA node or socket.
func (l *Layout) listFreeNodes(free topology.CPUSet, units []int16) []int16 {
	quarter := len(units) / 4
	t := taking{
		layout: l, nodeCounts: units[:quarter], socketCounts: units[quarter : 2*quarter],
		nodeList: units[2*quarter : 3*quarter : 3*quarter], socketList: units[3*quarter:],
	}
	for i := range l.nodes.sets {
		t.nodeCounts[i] = int16(free.CountCommon(l.nodes.sets[i]))
	}
	for i := range l.sockets.sets {
		t.socketCounts[i] = int16(free.CountCommon(l.sockets.sets[i]))
	}
	return t.sortNodes()
}

// distribution is a choice of NUMA nodes, with the number of CPUs that each of these nodes gives.
type distribution struct {
	left    []int   // CPUs that stay free, by index in spread.nodes
	share   int     // CPUs that each node of the choice gives at once; more CPUs come in groups
	balance float64 // standard deviation of left; smaller is better. none: it is no distribution
	socket  bool    // all nodes are in one socket; considered with align-by-socket only
}

// none is larger than any balance.
const none = math.MaxFloat64

// isBetter reports whether d is better than the distribution other. With align-by-socket, a distribution in one socket is
// better. Otherwise the smaller balance is better.
func (d *distribution) isBetter(other *distribution) bool {
	if d.socket != other.socket {
		return d.socket
	}
	return d.balance < other.balance
}

// findBest sets s.best to the best distribution over k NUMA nodes. It returns false if there is none.
func (s *spread) findBest(k int) bool {
	if s.countDistributions(k) > maxTried {
		return s.findGreedy(k)
	}
	s.best.socket, s.best.balance = false, none
	positions := s.positions[:k]
	for ok := startCombination(positions, len(s.nodes)); ok; ok = nextCombination(positions, len(s.nodes)) {
		if remainder, ok := s.shareEqually(positions); ok && s.findRemainder(positions, remainder) {
			s.keepBetter()
		}
		if s.best.balance == 0 && (!s.alignSocket || s.best.socket) {
			break
		}
	}
	return s.best.balance < none
}

// keepBetter sets s.best to the better one of s.best and s.next.
func (s *spread) keepBetter() {
	if s.next.isBetter(&s.best) {
		s.best, s.next = s.next, s.best
	}
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

// startCombination sets chosen to the first combination of numbers from 0 to m-1, in lexical order. It returns false if there is none of this length.
func startCombination(chosen []int, m int) bool {
	for i := range chosen {
		chosen[i] = i
	}
	return len(chosen) >= 1 && len(chosen) <= m
}

// nextCombination sets chosen to the next combination of numbers from 0 to m-1, in lexical order. It returns false if chosen is the last one.
func nextCombination(chosen []int, m int) bool {
	k := len(chosen)
	i := k - 1
	for i >= 0 && chosen[i] == m-k+i {
		i--
	}
	if i < 0 {
		return false
	}
	for chosen[i]++; i+1 < k; i++ {
		chosen[i+1] = chosen[i] + 1
	}
	return true
}

// shareEqually sets s.next to the distribution in which the NUMA nodes at positions, which are indexes in s.nodes, give equal
// shares. It returns the number of the s.n CPUs that these leave over, and false if these nodes have too few free CPUs.
func (s *spread) shareEqually(positions []int) (remainder int, ok bool) {
	total, groups := 0, 0
	for _, p := range positions {
		total += s.free[p]
		groups += s.free[p] / s.group
	}
	if total < s.n || groups*s.group < s.n {
		return 0, false
	}
	share := s.n / len(positions) / s.group * s.group
	if s.alignSocket {
		for _, p := range positions {
			share = min(share, s.free[p]/s.group*s.group)
		}
	}
	copy(s.next.left, s.free)
	for _, p := range positions {
		if s.free[p] < share {
			return 0, false
		}
		s.next.left[p] -= share
	}
	s.next.share, s.next.socket = share, s.alignSocket && s.isOneSocket(positions)
	return s.n - share*len(positions), true
}

// isOneSocket reports whether all CPUs of the nodes at positions are in one socket.
func (s *spread) isOneSocket(positions []int) bool {
	first := s.layout.socketsOfNode[s.nodes[positions[0]]]
	return len(first) == 1 && !slices.ContainsFunc(positions, func(p int) bool { return !slices.Equal(s.layout.socketsOfNode[s.nodes[p]], first) })
}

// findRemainder chooses which nodes give the CPUs that the equal shares leave over. It tries all subsets of the nodes at
// positions, the largest subsets first. It stores the best choice and its balance in s.next, and returns false if there is none.
func (s *spread) findRemainder(positions []int, remainder int) bool {
	if remainder == 0 {
		s.next.balance = computeDeviation(s.next.left)
		return true
	}
	copy(s.left, s.next.left)
	able := s.able[:0] // the positions of nodes that can give another group
	for _, p := range positions {
		if s.left[p] >= s.group {
			able = append(able, p)
		}
	}
	s.next.balance = none
	for size := len(able); size >= 1; size-- {
		subset := s.subset[:size]
		for ok := startCombination(subset, len(able)); ok; ok = nextCombination(subset, len(able)) {
			copy(s.rest, s.left)
			if !s.giveRemainder(s.rest, able, subset, remainder) {
				continue
			}
			if balance := computeDeviation(s.rest); balance < s.next.balance {
				s.next.balance = balance
				copy(s.next.left, s.rest)
			}
		}
	}
	return s.next.balance < none
}

// giveRemainder subtracts the remaining CPUs from rest, the free CPUs of each node. Each node of subset gives one group in
// turn. subset contains indexes in able, which contains indexes in s.nodes. It returns false if the nodes have too few groups.
func (s *spread) giveRemainder(rest, able, subset []int, remainder int) bool {
	for remainder > 0 {
		before := remainder
		for _, i := range subset {
			if p := able[i]; remainder > 0 && rest[p] >= s.group {
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

// findGreedy sets s.best to a distribution over the k NUMA nodes with the most free CPUs, and returns false if these nodes have
// too few. If s.alignSocket is true, it prefers k nodes of one socket. The CPUs that the division leaves over come from the
// nodes with the most free CPUs.
func (s *spread) findGreedy(k int) bool {
	s.best.socket, s.best.balance = false, none
	s.tryFullest(k, s.layout.allNodes)
	if s.alignSocket {
		for _, nodes := range s.layout.nodesOfSocket {
			s.tryFullest(k, nodes)
		}
	}
	return s.best.balance < none
}

// tryFullest sets s.best to the distribution over the k NUMA nodes among nodes that have the most free CPUs, if it is better.
func (s *spread) tryFullest(k int, nodes []int16) {
	positions := s.findFullest(k, nodes)
	if len(positions) < k {
		return
	}
	if remainder, ok := s.shareEqually(positions); ok && s.giveFromFullest(positions, remainder) {
		s.keepBetter()
	}
}

// findFullest returns the indexes in s.nodes of the k nodes with the most free CPUs, in ascending order. It considers only the
// given nodes, which are in ascending order, and returns fewer indexes if these are fewer.
func (s *spread) findFullest(k int, nodes []int16) []int {
	positions := s.positions[:0]
	for p, n := range s.nodes {
		if _, ok := slices.BinarySearch(nodes, n); ok {
			positions = append(positions, p)
		}
	}
	slices.SortStableFunc(positions, func(a, b int) int { return s.free[b] - s.free[a] })
	positions = positions[:min(k, len(positions))]
	slices.Sort(positions)
	return positions
}

// giveFromFullest chooses which nodes give the CPUs that the equal shares leave over: each group of CPUs comes from the node
// with the most free CPUs. It stores the choice and its balance in s.next, and returns false if the nodes have too few groups.
func (s *spread) giveFromFullest(positions []int, remainder int) bool {
	left := s.next.left
	for ; remainder > 0; remainder -= s.group {
		fullest := positions[0]
		for _, p := range positions {
			if left[p] > left[fullest] {
				fullest = p
			}
		}
		if left[fullest] < s.group {
			return false
		}
		left[fullest] -= s.group
	}
	s.next.balance = computeDeviation(left)
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

// takeShares takes CPUs from free as s.best plans: from each node first the equal share, and then one group after the other.
func (s *spread) takeShares(free topology.CPUSet, opts Options) (taken topology.CPUSet, err error) {
	for p, node := range s.nodes {
		here := free.Intersect(s.layout.nodes.sets[node])
		count := s.best.share
		for rest := s.free[p] - s.best.left[p]; rest > 0; {
			part, err := s.layout.takePacked(here, count, opts)
			if err != nil {
				return topology.CPUSet{}, err
			}
			taken, here = taken.Union(part), here.Minus(part)
			rest, count = rest-count, s.group
		}
	}
	return taken, nil
}
