// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package podtree_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/cgroups"
	"github.com/seed81659283/nodeagent/cgroups/cgroupstest"
	"github.com/seed81659283/nodeagent/cgroups/podtree"
	"github.com/seed81659283/nodeagent/internal/script"
	"github.com/seed81659283/nodeagent/qos"
)

// TestPlanResize runs the sections of testdata/resize.txt. A line is "pod KEY=FROM->TO ..." or "container NAME KEY=FROM->TO ...".
// ">" is a step of the plan or its error. Keys of a pod are max, high, low, min, quota (with period 100000), shares and usage.
// Keys of a container are cpu, memory (both REQUEST/LIMIT) and usage.
func TestPlanResize(t *testing.T) {
	script.Run(t, "testdata/resize.txt", func(t *testing.T, text string) string {
		var r podtree.PodResize
		result := script.Lines(strings.TrimSuffix(text, "\n"), ">", func(_ *strings.Builder, words []string) {
			switch words[0] {
			case "pod":
				for _, word := range words[1:] {
					podChange(t, &r, word)
				}
			case "container":
				c := cgroups.ContainerResize{Name: words[1]}
				for _, word := range words[2:] {
					containerChange(&c, word)
				}
				r.Containers = append(r.Containers, c)
			}
		})
		steps, err := podtree.PlanResize(r)
		for _, s := range steps {
			result += fmt.Sprintf("> %s\n", s)
		}
		if err != nil {
			result += fmt.Sprintf("> refused: %s\n", strings.ReplaceAll(err.Error(), "\n", "; "))
		}
		return result + "\n"
	})
}

func podChange(t *testing.T, r *podtree.PodResize, word string) {
	key, value, _ := strings.Cut(word, "=")
	from, to, _ := strings.Cut(value, "->")
	memory := map[string][2]**int64{
		"max": {&r.From.MemoryMax, &r.To.MemoryMax}, "high": {&r.From.MemoryHigh, &r.To.MemoryHigh},
		"low": {&r.From.MemoryLow, &r.To.MemoryLow}, "min": {&r.From.MemoryMin, &r.To.MemoryMin},
	}
	switch key {
	case "usage":
		r.MemoryUsage = amount(value)
	case "quota":
		r.From.CPUQuota, r.From.CPUPeriod, r.To.CPUQuota, r.To.CPUPeriod = amount(from), 100000, amount(to), 100000
	case "shares":
		r.From.CPUShares, r.To.CPUShares = uint64(amount(from)), uint64(amount(to))
	default:
		require.Contains(t, memory, key)
		for i, side := range []string{from, to} {
			if side != "" {
				*memory[key][i] = new(amount(side))
			}
		}
	}
}

func containerChange(c *cgroups.ContainerResize, word string) {
	key, value, _ := strings.Cut(word, "=")
	from, to, _ := strings.Cut(value, "->")
	for _, side := range []struct {
		size *cgroups.ContainerSize
		text string
	}{{&c.From, from}, {&c.To, to}} {
		request, limit, _ := strings.Cut(side.text, "/")
		switch key {
		case "usage":
			c.MemoryUsage = amount(value)
		case "cpu":
			side.size.CPURequest, side.size.CPULimit = amount(request), amount(limit)
		case "memory":
			side.size.MemoryRequest, side.size.MemoryLimit = amount(request), amount(limit)
		}
	}
}

// TestPlanResizeKeepsContainersWithinPod executes random plans step by step. If the container limits fit into the pod before and
// after, they must fit after each step, and the final limits must be the requested ones.
func TestPlanResizeKeepsContainersWithinPod(t *testing.T) {
	for seed := range uint64(5_000) {
		checkResizePlan(t, rand.New(rand.NewPCG(seed, 1)))
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
}

func FuzzResize(f *testing.F) {
	f.Fuzz(func(t *testing.T, a, b uint64) { checkResizePlan(t, rand.New(rand.NewPCG(a, b))) })
}

func checkResizePlan(t *testing.T, random *rand.Rand) {
	r := randomResize(random)
	steps, err := podtree.PlanResize(r)
	require.NoError(t, err)
	pod, sizes := r.From, map[string]cgroups.ContainerSize{}
	for _, c := range r.Containers {
		sizes[c.Name] = c.From
	}
	for _, s := range steps {
		if s.Container != "" {
			sizes[s.Container] = s.Size
		} else {
			set(&pod, s.To)
		}
		var memory, cpu int64
		for _, size := range sizes {
			memory, cpu = memory+size.MemoryLimit, cpu+size.CPULimit
		}
		assert.LessOrEqual(t, memory, *pod.MemoryMax, "after %s", s)
		assert.LessOrEqual(t, cgroups.CPUQuota(cpu, 0), pod.CPUQuota, "after %s", s)
		assert.LessOrEqual(t, *pod.MemoryHigh, *pod.MemoryMax, "after %s", s)
		assert.LessOrEqual(t, *pod.MemoryLow, *pod.MemoryHigh, "after %s", s)
	}
	assert.Equal(t, r.To, pod)
	for _, c := range r.Containers {
		assert.Equal(t, c.To, sizes[c.Name], c.Name)
	}
}

// randomResize returns a resize whose containers fit into the pod before and after.
func randomResize(random *rand.Rand) podtree.PodResize {
	var r podtree.PodResize
	size := func() cgroups.ContainerSize {
		n := func() int64 { return 1 + random.Int64N(4) }
		return cgroups.ContainerSize{CPURequest: 10 * n(), CPULimit: 100 * n(), MemoryRequest: n(), MemoryLimit: 10 * n()}
	}
	for i := range 1 + random.IntN(3) {
		r.Containers = append(r.Containers, cgroups.ContainerResize{Name: fmt.Sprint(i), From: size(), To: size(), MemoryUsage: 1})
	}
	pod := func(pick func(cgroups.ContainerResize) cgroups.ContainerSize) cgroups.Resources {
		var sum cgroups.ContainerSize
		for _, c := range r.Containers {
			sum.CPURequest += pick(c).CPURequest
			sum.CPULimit += pick(c).CPULimit
			sum.MemoryRequest += pick(c).MemoryRequest
			sum.MemoryLimit += pick(c).MemoryLimit
		}
		spare := random.Int64N(20)
		high := sum.MemoryRequest + random.Int64N(sum.MemoryLimit+spare-sum.MemoryRequest)
		return cgroups.Resources{
			CPUShares: cgroups.CPUShares(sum.CPURequest),
			CPUQuota:  cgroups.CPUQuota(sum.CPULimit+spare, 0), CPUPeriod: cgroups.DefaultPeriod,
			MemoryMax: new(sum.MemoryLimit + spare), MemoryHigh: &high, MemoryLow: new(sum.MemoryRequest),
		}
	}
	r.From = pod(func(c cgroups.ContainerResize) cgroups.ContainerSize { return c.From })
	r.To = pod(func(c cgroups.ContainerResize) cgroups.ContainerSize { return c.To })
	return r
}

// set writes the fields of a step to r.
func set(r *cgroups.Resources, step cgroups.Resources) {
	if step.CPUQuota != 0 {
		r.CPUQuota, r.CPUPeriod = step.CPUQuota, step.CPUPeriod
	}
	if step.CPUShares != 0 {
		r.CPUShares = step.CPUShares
	}
	for _, n := range []struct{ to, from **int64 }{
		{&r.MemoryMax, &step.MemoryMax}, {&r.MemoryHigh, &step.MemoryHigh}, {&r.MemoryLow, &step.MemoryLow},
	} {
		if *n.from != nil {
			*n.to = *n.from
		}
	}
}

// notedRuntime is a container runtime that records its calls.
type notedRuntime struct {
	told []string
	fail string // the call that fails
}

func (r *notedRuntime) tell(format string, args ...any) error {
	call := fmt.Sprintf(format, args...)
	r.told = append(r.told, call)
	if r.fail != "" && strings.Contains(call, r.fail) {
		return errors.New("refused by the runtime")
	}
	return nil
}

func (r *notedRuntime) ResizeSandbox(_ context.Context, res cgroups.Resources) error {
	return r.tell("sandbox shares=%d quota=%d max=%s", res.CPUShares, res.CPUQuota, bytes(*res.MemoryMax))
}

func (r *notedRuntime) ResizeContainer(_ context.Context, name string, size cgroups.ContainerSize) error {
	return r.tell("container %s cpu=%d/%d memory=%s/%s", name, size.CPURequest, size.CPULimit,
		bytes(size.MemoryRequest), bytes(size.MemoryLimit))
}

// resizeStage returns a pod of 1 CPU and 1Gi with a running container, which the test resizes to twice the size.
func resizeStage(t *testing.T) (tree *podtree.Tree, fake *cgroupstest.Tree, faults *cgroupstest.Faults, containers []cgroups.ContainerResize) {
	t.Helper()
	pod := newPod("a", list("cpu", "1", "memory", "1Gi"), list("cpu", "1", "memory", "1Gi"))
	fake = cgroupstest.New(cgroupstest.Options{Mode: cgroupstest.V1})
	faults = &cgroupstest.Faults{Driver: fake}
	o := options()
	o.Node.CgroupV1 = true
	tree, err := podtree.New(faults, pods(pod), o)
	require.NoError(t, err)
	require.NoError(t, tree.Setup(t.Context()))
	require.NoError(t, tree.Ensure(t.Context(), pod))
	require.NoError(t, fake.Apply(t.Context(), "kubepods/poda/main", cgroups.Resources{}))
	_, err = fake.Start(cgroupstest.Proc{Cgroup: "kubepods/poda/main", Name: "main", Memory: 1 << 29})
	require.NoError(t, err)
	from := cgroups.ContainerSize{CPURequest: 1000, CPULimit: 1000, MemoryRequest: 1 << 30, MemoryLimit: 1 << 30}
	to := cgroups.ContainerSize{CPURequest: 2000, CPULimit: 2000, MemoryRequest: 2 << 30, MemoryLimit: 2 << 30}
	return tree, fake, faults, []cgroups.ContainerResize{{Name: "main", From: from, To: to, MemoryUsage: 1 << 29}}
}

func TestResizeAppliesPodAndContainers(t *testing.T) {
	tree, fake, _, containers := resizeStage(t)
	rt := &notedRuntime{}
	pod := newPod("a", list("cpu", "2", "memory", "2Gi"), list("cpu", "2", "memory", "2Gi"))
	require.NoError(t, tree.Resize(t.Context(), pod, containers, rt))
	require.Equal(t, []string{
		"sandbox shares=1024 quota=100000 max=2Gi",
		"container main cpu=1000/1000 memory=2Gi/2Gi",
		"sandbox shares=1024 quota=200000 max=2Gi",
		"sandbox shares=2048 quota=200000 max=2Gi",
		"container main cpu=2000/2000 memory=2Gi/2Gi",
	}, rt.told)
	r, err := fake.Limits(t.Context(), "kubepods/poda")
	require.NoError(t, err)
	require.EqualValues(t, 2<<30, *r.MemoryMax)
	require.EqualValues(t, 200000, r.CPUQuota)
	require.EqualValues(t, 2048, r.CPUShares)

	t.Run("second resize writes nothing", func(t *testing.T) {
		rt := &notedRuntime{}
		require.NoError(t, tree.Resize(t.Context(), pod, nil, rt))
		require.Empty(t, rt.told)
	})
	t.Run("limit below usage fails before any write", func(t *testing.T) {
		rt := &notedRuntime{}
		small := newPod("a", list("cpu", "1", "memory", "512Mi"), list("cpu", "1", "memory", "512Mi"))
		err := tree.Resize(t.Context(), small, nil, rt)
		require.EqualError(t, err, "resize pod default/a: cannot decrease memory limits: attempting to set pod memory limit (536870912) below current usage (536870912)")
		require.Empty(t, rt.told)
	})
}

// A resize while the quota is lifted writes the new quota after the containers: a kernel with cgroup v1 rejects a pod quota below
// that of a container.
func TestResizeDuringLiftedQuota(t *testing.T) {
	for _, limit := range []string{"50m", "200m"} {
		fake, rt := cgroupstest.New(cgroupstest.Options{Mode: cgroupstest.V1}), &notedRuntime{}
		o := options()
		o.Node.CgroupV1 = true
		pod := newPod("a", list("cpu", "10m"), list("cpu", "100m", "memory", "1Gi"))
		tree, err := podtree.New(fake, pods(pod), o)
		require.NoError(t, err)
		require.NoError(t, tree.Setup(t.Context()))
		require.NoError(t, tree.Ensure(t.Context(), pod))
		quota := func() int64 {
			r, err := fake.Limits(t.Context(), tree.Path(pod))
			require.NoError(t, err)
			return r.CPUQuota
		}
		require.EqualValues(t, cgroups.Unlimited, quota())
		resized := newPod("a", list("cpu", "10m"), list("cpu", limit, "memory", "1Gi"))
		milli := resized.Spec.Containers[0].Resources.Limits.Cpu().MilliValue()
		require.NoError(t, tree.Resize(t.Context(), resized, []cgroups.ContainerResize{{
			Name: "main", From: cgroups.ContainerSize{CPURequest: 10, CPULimit: 100}, To: cgroups.ContainerSize{CPURequest: 10, CPULimit: milli},
		}}, rt))
		require.EqualValues(t, milli*100, quota())
		require.Len(t, rt.told, 2)
		require.Contains(t, rt.told[0], "container main")
		require.Contains(t, rt.told[1], fmt.Sprintf("quota=%d", milli*100))
		require.NoError(t, tree.Limit(t.Context(), resized))
		require.EqualValues(t, milli*100, quota())
	}
}

// A resize resets the memory QoS values of the previous size.
func TestResizeResetsMemoryQoS(t *testing.T) {
	fake, rt := cgroupstest.New(cgroupstest.Options{}), &notedRuntime{}
	o := options()
	o.Node.Reservation, o.Node.ThrottlingFactor = qos.TieredReservation, new(0.5)
	whole := func(request, limit string) *corev1.Pod {
		pod := newPod("a", nil, nil)
		pod.Spec.Resources = &corev1.ResourceRequirements{
			Requests: list("cpu", "1", "memory", request), Limits: list("memory", limit),
		}
		return pod
	}
	pod := whole("1Gi", "2Gi")
	tree, err := podtree.New(fake, pods(pod), o)
	require.NoError(t, err)
	require.NoError(t, tree.Setup(t.Context()))
	require.NoError(t, tree.Ensure(t.Context(), pod))
	r, err := fake.Limits(t.Context(), tree.Path(pod))
	require.NoError(t, err)
	require.EqualValues(t, 3<<29, *r.MemoryHigh)
	require.EqualValues(t, 1<<30, *r.MemoryLow)

	require.NoError(t, tree.Resize(t.Context(), whole("2Gi", "2Gi"), nil, rt))
	r, err = fake.Limits(t.Context(), tree.Path(pod))
	require.NoError(t, err)
	require.EqualValues(t, cgroups.Unlimited, *r.MemoryHigh)
	require.EqualValues(t, 2<<30, *r.MemoryLow)

	require.NoError(t, tree.Resize(t.Context(), whole("0", "2Gi"), nil, rt))
	r, err = fake.Limits(t.Context(), tree.Path(pod))
	require.NoError(t, err)
	require.Zero(t, *r.MemoryLow)
}

func TestResizeRestoresLimitsAfterError(t *testing.T) {
	pod := newPod("a", list("cpu", "2", "memory", "2Gi"), list("cpu", "2", "memory", "2Gi"))
	t.Run("runtime rejection prevents writes", func(t *testing.T) {
		tree, fake, _, containers := resizeStage(t)
		err := tree.Resize(t.Context(), pod, containers, &notedRuntime{fail: "sandbox"})
		require.EqualError(t, err, "resize pod default/a: pod memory.max 2147483648: refused by the runtime")
		r, err := fake.Limits(t.Context(), "kubepods/poda")
		require.NoError(t, err)
		require.EqualValues(t, 1<<30, *r.MemoryMax)
	})
	t.Run("rejected container keeps the pod limit", func(t *testing.T) {
		tree, fake, _, containers := resizeStage(t)
		err := tree.Resize(t.Context(), pod, containers, &notedRuntime{fail: "container"})
		require.ErrorContains(t, err, "container main memory 2147483648/2147483648: refused")
		r, err := fake.Limits(t.Context(), "kubepods/poda")
		require.NoError(t, err)
		require.EqualValues(t, 2<<30, *r.MemoryMax)
	})
	t.Run("failed write is undone in cgroup and runtime", func(t *testing.T) {
		tree, fake, faults, containers := resizeStage(t)
		ctx, cancel := context.WithCancel(t.Context())
		faults.ApplyFunc = func(ctx context.Context, next cgroupstest.Driver, p cgroups.Path, r cgroups.Resources) error {
			err := next.Apply(ctx, p, r)
			if r.CPUQuota == 200000 {
				cancel() // the context of the caller ends too
				return errors.New("lost")
			}
			return err
		}
		rt := &notedRuntime{}
		err := tree.Resize(ctx, pod, containers, rt)
		require.EqualError(t, err, "resize pod default/a: pod cpu quota 200000/100000: lost")
		require.Equal(t, "sandbox shares=1024 quota=100000 max=2Gi", rt.told[len(rt.told)-1])
		r, err := fake.Limits(t.Context(), "kubepods/poda")
		require.NoError(t, err)
		require.EqualValues(t, 100000, r.CPUQuota)
		require.EqualValues(t, 2<<30, *r.MemoryMax)
	})
	t.Run("pod without cgroup", func(t *testing.T) {
		tree, _, _, _ := resizeStage(t)
		err := tree.Resize(t.Context(), newPod("b", nil, nil), nil, &notedRuntime{})
		require.ErrorContains(t, err, "resize pod default/b: read cgroup /kubepods/besteffort/podb: ")
	})
	t.Run("driver without Reader", func(t *testing.T) {
		fake := cgroupstest.New(cgroupstest.Options{})
		tree, err := podtree.New(struct {
			cgroups.CgroupWriter
			cgroups.Lister
		}{fake, fake}, pods(), options())
		require.NoError(t, err)
		require.ErrorIs(t, tree.Resize(t.Context(), pod, nil, &notedRuntime{}), errors.ErrUnsupported)
	})
}
