// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package nodestatus_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/nodestatus"
	"github.com/seed81659283/nodeagent/nodestatus/machine"
)

var start = time.Date(2026, 11, 22, 9, 0, 0, 0, time.UTC)

// containerd returns the state of a ready runtime whose status was just read.
func containerd(now time.Time) nodestatus.RuntimeState {
	return nodestatus.RuntimeState{}.
		WithStatus(cri.Status{
			Conditions: []cri.Condition{{Type: cri.ConditionRuntimeReady, Status: true}, {Type: cri.ConditionNetworkReady, Status: true}},
			Handlers:   []cri.RuntimeHandler{{Name: "runsc"}, {Name: "", UserNamespaces: true, RecursiveReadOnlyMounts: true}},
			Features:   cri.RuntimeFeatures{SupplementalGroupsPolicy: true},
		}, now).
		WithVersion(cri.Version{RuntimeName: "containerd", RuntimeVersion: "v2.4.0"})
}

// facts returns the facts of a healthy node.
func facts() nodestatus.Facts {
	return nodestatus.Facts{
		Config:  nodestatus.Config{Name: "n1", Port: 10250},
		Now:     start,
		Host:    nodestatus.Host{Interfaces: ips("127.0.0.1", "10.0.0.1", "fd00::1"), Default: netip.MustParseAddr("10.0.0.1")},
		Runtime: containerd(start),
		Machine: machine.Info{
			MachineID: "m", SystemUUID: "s", BootID: "b1", KernelVersion: "6.12.0", OSImage: "Debian GNU/Linux 13 (trixie)",
			CPUs: 4, Memory: 10 << 30, RootFS: 100 << 30, UserNS: new(false),
		},
		ImagesKnown: true, VolumesKnown: true,
	}
}

func ips(all ...string) (out []netip.Addr) {
	for _, s := range all {
		out = append(out, netip.MustParseAddr(s))
	}
	return out
}

func quantity(s string) resource.Quantity { return resource.MustParse(s) }

// amounts returns a list as text, so that equal amounts in different notations are equal.
func amounts(list corev1.ResourceList) map[string]string {
	out := map[string]string{}
	for name, q := range list {
		out[string(name)] = q.String()
	}
	return out
}

func reasons(events []nodestatus.Event) (out []string) {
	for _, e := range events {
		out = append(out, e.Reason)
	}
	return out
}

// condition returns a condition of the node. If there is none, its Message says so.
func condition(node *corev1.Node, kind corev1.NodeConditionType) corev1.NodeCondition {
	for _, c := range node.Status.Conditions {
		if c.Type == kind {
			return c
		}
	}
	return corev1.NodeCondition{Message: fmt.Sprintf("no condition %s", kind)}
}

// rounds returns the number of random objects for a property: a quarter of n, or 20 n with NODEAGENT_SOAK=1.
func rounds(n int) int {
	if os.Getenv("NODEAGENT_SOAK") != "" {
		return 20 * n
	}
	return n / 4
}

// randomFacts returns random facts with few distinct values, so that some values stay between two calls.
func randomFacts(r *rand.Rand) nodestatus.Facts {
	in := facts()
	in.Now = start.Add(time.Duration(r.IntN(120)) * time.Second)
	in.Config.ExternalCloudProvider, in.Config.NoControllerAttachDetach = r.IntN(4) == 0, r.IntN(4) == 0
	in.Config.NodeIPs = pick(r, nil, ips("10.0.0.1"), ips("::"), ips("10.0.0.1", "fd00::1"), ips("192.0.2.1"))
	in.Config.MaxImages = pick(r, nil, new(int32(1)), new(int32(-1)))
	in.Config.Port = pick[int32](r, 0, 10250)
	in.Config.Labels = pick(r, nil, map[string]string{"disk": "ssd", corev1.LabelTopologyZone: "a"}, map[string]string{corev1.LabelTopologyZone: ""})
	in.Machine.BootID = pick(r, "b1", "b2", "")
	in.Machine.Memory = pick[int64](r, 0, 10<<30, 4_000_000_000)
	in.Machine.Swap = pick[int64](r, 0, 1<<30, 1<<55+1)
	in.Machine.HugePages = pick(r, nil, map[int64]int64{2 << 20: 1 << 30}, map[int64]int64{2 << 20: 0, 1 << 30: 2 << 30})
	in.Host.Named = pick(r, nil, ips("fd00::1"), ips("127.0.0.1", "fd00::1", "10.0.0.1"))
	if r.IntN(3) == 0 {
		in.Runtime = pick(r, nodestatus.RuntimeState{}, in.Runtime.WithStatus(cri.Status{}, in.Now), containerd(in.Now))
	}
	in.Health = nodestatus.Health{
		MemoryPressure: r.IntN(3) == 0, DiskPressure: r.IntN(3) == 0, PIDPressure: r.IntN(3) == 0, ShuttingDown: r.IntN(8) == 0,
		Storage: pick(r, nil, nil, errors.New("no CSINode")), Warning: pick(r, nil, nil, errors.New("no hugetlb")),
	}
	for i := range r.IntN(4) {
		in.Images = append(in.Images, cri.Image{ID: fmt.Sprint(i), Size: uint64(r.IntN(3)) << 60, RepoTags: []string{fmt.Sprint("i:", i)}})
	}
	in.ImagesKnown, in.VolumesKnown = r.IntN(4) > 0, r.IntN(4) > 0
	in.VolumesInUse = pick(r, nil, []corev1.UniqueVolumeName{"b", "a"}, []corev1.UniqueVolumeName{"a"})
	if r.IntN(3) == 0 {
		in.Devices = nodestatus.Devices{
			Capacity:    corev1.ResourceList{"example.com/gpu": quantity(pick(r, "2", "4"))},
			Allocatable: corev1.ResourceList{"example.com/gpu": quantity(pick(r, "0", "2"))},
			Removed:     pick(r, nil, []corev1.ResourceName{"example.com/nic"}),
		}
	}
	return in
}

func pick[T any](r *rand.Rand, values ...T) T { return values[r.IntN(len(values))] }

// randomNode returns a Node object after one or more calls of Build, with changes by other clients.
func randomNode(r *rand.Rand) *corev1.Node {
	node, _ := nodestatus.Initial(randomFacts(r))
	node.UID = "u1"
	node.Labels["theirs"] = "1"
	node.Status.Capacity["cluster.example.com/x"] = quantity("3")
	node.Status.Conditions = append(node.Status.Conditions, corev1.NodeCondition{Type: corev1.NodeNetworkUnavailable, Status: corev1.ConditionFalse})
	node.Status.VolumesAttached = []corev1.AttachedVolume{{Name: "a", DevicePath: "/dev/x"}}
	node.Spec.Unschedulable = r.IntN(2) == 0
	for range r.IntN(3) {
		node, _ = nodestatus.Build(node, randomFacts(r))
	}
	return node
}

func randomImages(n int) (images []cri.Image) {
	for i := range n {
		images = append(images, cri.Image{ID: fmt.Sprint(i), Size: uint64(i), RepoTags: []string{fmt.Sprint("registry.example.com/i:", i)}})
	}
	return images
}
