// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package memimage_test

import (
	"fmt"
	"math"
	"net/netip"
	"reflect"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/seed81659283/nodeagent/internal/memimage"
)

type owner struct{ name string }

type part struct {
	Name     string
	parent   *part
	children []*part
	owner    *owner
	byName   map[string]*part
	mu       *sync.Mutex
	done     func() string
	any      any
	times    [3]time.Time
	numbers  []float64
	bytes    []byte
	signed   int32
	complex  complex128
	flags    map[part2]bool
	deep     ****int
	addrs    []netip.Addr
}

type part2 struct {
	a, b string
	at   time.Time
}

// newPart returns a value of all kinds, with cycles and shared memory.
func newPart(o *owner) *part {
	root := &part{Name: "root", owner: o, mu: &sync.Mutex{}, byName: map[string]*part{}, bytes: []byte("bytes\x00"), signed: -7, complex: complex(1, -2)}
	root.times = [3]time.Time{time.Now(), time.Now().UTC(), time.Now().Round(0)}
	root.numbers = []float64{0.5, -1, math.Inf(1)}
	root.any = o
	root.flags = map[part2]bool{{"a", "b", root.times[0]}: true, {}: false}
	root.addrs = []netip.Addr{{}, netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("::1"), netip.MustParseAddr("fe80::1%eth0")}
	n := new(5)
	n2 := &n
	n3 := &n2
	root.deep = &n3
	for i := range 3 {
		c := &part{Name: fmt.Sprint("child", i), parent: root, owner: o, numbers: root.numbers, times: root.times}
		root.children, root.byName[c.Name] = append(root.children, c), c
	}
	root.children = append(root.children, nil)
	return root
}

func TestRestoreReturnsEqualValues(t *testing.T) {
	o := &owner{"o"}
	root, list, empty, none := newPart(o), []*part{}, map[string]int{}, []int(nil)
	hook, want := &part{done: func() string { return "done" }}, root
	packer := memimage.NewPacker(reflect.TypeFor[*owner]())
	for range 3 { // the first image is the dictionary of the others
		image, err := packer.Pack(&root, &list, &empty, &none, &hook)
		require.NoError(t, err)
		require.Nil(t, root)
		require.Nil(t, list)
		require.Positive(t, image.Size())
		image.Restore()
		require.Equal(t, "done", hook.done())
		require.NotSame(t, want, root)
		require.True(t, reflect.DeepEqual(want, root))
		require.Same(t, root.children[1], root.byName["child1"])
		require.Same(t, root, root.children[2].parent)
		require.Same(t, o, root.children[0].owner)
		require.Same(t, &root.numbers[0], &root.children[0].numbers[0])
		require.True(t, slices.Equal(root.addrs, want.addrs) && root.addrs[1].Is4(), "with their families and zones")
		require.True(t, root.times == want.times, "with the monotonic clock")
		require.NotNil(t, list)
		require.NotNil(t, empty)
		require.Nil(t, none)
		require.True(t, root.mu.TryLock())
		root.mu.Unlock()
	}
}

// A variable that is a struct keeps its address: pointers to it from outside and from other variables stay valid.
func TestRestoreKeepsAddressesOfVariables(t *testing.T) {
	root := newPart(nil)
	child := root.children[0]
	image, err := memimage.NewPacker().Pack(root, &child)
	require.NoError(t, err)
	require.Empty(t, root.Name)
	image.Restore()
	require.Same(t, root, child.parent)
	require.Same(t, child, root.byName["child0"])
}

func TestPackReturnsErrorForMemoryOfTwoTypes(t *testing.T) {
	numbers := []int{1, 2, 3}
	p := &part{Name: "a"}
	for name, variables := range map[string][]any{
		"slice and element":  {&numbers, new(&numbers[1])},
		"overlapping slices": {&numbers, new(numbers[:2])},
		"struct and field":   {&p, new(&p.Name)},
		"one variable twice": {&p, &p},
		"no pointer":         {numbers},
		"nil":                {(*int)(nil)},
	} {
		_, err := memimage.NewPacker().Pack(variables...)
		require.Error(t, err, name)
		require.Len(t, numbers, 3)
		require.Equal(t, "a", p.Name)
	}
}

// newPod returns a pod with the status that a node reports.
func newPod(name string) *corev1.Pod {
	now := metav1.NewTime(time.Now())
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default", UID: "f9a3b1c0-" + "0000-0000-0000-000000000000", Labels: map[string]string{"app": "web"}, CreationTimestamp: now},
		Spec: corev1.PodSpec{NodeName: "n1", Containers: []corev1.Container{{
			Name: "main", Image: "any", Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{"cpu": resource.MustParse("200m"), "memory": resource.MustParse("64Mi"), "x": resource.MustParse("1234567890123456789012345678")}},
		}}},
		Status: corev1.PodStatus{
			Phase: corev1.PodRunning, PodIPs: []corev1.PodIP{{IP: "10.0.0.1"}}, StartTime: &now, Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue, LastTransitionTime: now}},
			ContainerStatuses: []corev1.ContainerStatus{{Name: "main", Ready: true, State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: now}}, Started: new(true)}},
		},
	}
}

func TestRestoreReturnsEqualPods(t *testing.T) {
	var pods, want []*corev1.Pod
	for i := range 10 {
		pods = append(pods, newPod(fmt.Sprint("p", i)))
		_ = pods[i].Spec.Containers[0].Resources.Requests.Cpu().String() // which caches the text
		want = append(want, pods[i].DeepCopy())
		*want[i] = *pods[i] // DeepCopy of a quantity drops the text
	}
	packer := memimage.NewPacker()
	for range 2 {
		image, err := packer.Pack(&pods)
		require.NoError(t, err)
		require.Less(t, image.Size(), 3000)
		image.Restore()
		require.True(t, reflect.DeepEqual(want, pods))
	}
}

// FuzzRestoreReturnsEqualValues packs a graph that the input describes: each byte adds an object, or connects two.
func FuzzRestoreReturnsEqualValues(f *testing.F) {
	f.Add([]byte("\x00\x01\x02\x03\xff\x10\x20\x30abcdefgh"))
	packer := memimage.NewPacker()
	f.Fuzz(func(t *testing.T, input []byte) {
		all := []*part{{}}
		for i, b := range input {
			from, to := all[int(b)%len(all)], all[i%len(all)]
			switch b % 8 {
			case 0:
				all = append(all, &part{Name: string(input[:i]), signed: int32(b) - 100, numbers: from.numbers})
			case 1:
				from.parent = to
			case 2:
				from.children = append(slices.Clip(from.children), to, nil)
			case 3:
				from.byName = map[string]*part{string(input[i:]): to, "": nil}
			case 4:
				from.byName = to.byName
			case 5:
				from.numbers = []float64{float64(b), math.Inf(-1)}
			case 6:
				from.bytes = append([]byte{}, input[:i]...)
			case 7:
				from.times[i%3] = time.Unix(int64(b), int64(i))
			}
		}
		want := append([]*part{}, all...)
		copies := make([]part, len(all))
		for i := range all {
			copies[i] = *all[i]
		}
		image, err := packer.Pack(&all)
		require.NoError(t, err)
		image.Restore()
		require.True(t, reflect.DeepEqual(want, all))
		index := func(list []*part, p *part) int {
			for i := range list {
				if list[i] == p {
					return i
				}
			}
			return -1
		}
		for i := range want {
			require.Equal(t, index(want, want[i].parent), index(all, all[i].parent), "pointers to one object")
			require.Equal(t, copies[i].Name, all[i].Name)
		}
	})
}

// BenchmarkPack packs and restores ten pods.
func BenchmarkPack(b *testing.B) {
	var pods []*corev1.Pod
	for i := range 10 {
		pods = append(pods, newPod(fmt.Sprint("p", i)))
	}
	packer := memimage.NewPacker()
	for b.Loop() {
		image, err := packer.Pack(&pods)
		require.NoError(b, err)
		image.Restore()
		b.ReportMetric(float64(image.Size()), "bytes")
	}
}
