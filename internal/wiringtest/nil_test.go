// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package wiringtest_test

import (
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"

	"github.com/seed81659283/nodeagent/apiserver"
	"github.com/seed81659283/nodeagent/cgroups/cgroupstest"
	"github.com/seed81659283/nodeagent/cgroups/podtree"
	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/cri/criserver"
	"github.com/seed81659283/nodeagent/cri/critest"
	"github.com/seed81659283/nodeagent/cri/logs"
	"github.com/seed81659283/nodeagent/cri/remote"
	"github.com/seed81659283/nodeagent/cri/streaming"
	"github.com/seed81659283/nodeagent/eviction"
	"github.com/seed81659283/nodeagent/eviction/evictiontest"
	"github.com/seed81659283/nodeagent/eviction/podevict"
	"github.com/seed81659283/nodeagent/gc"
	"github.com/seed81659283/nodeagent/images"
	"github.com/seed81659283/nodeagent/internal/volume/podcert"
	"github.com/seed81659283/nodeagent/internal/volume/token"
	"github.com/seed81659283/nodeagent/internal/volume/trustbundle"
	"github.com/seed81659283/nodeagent/lifecycle"
	"github.com/seed81659283/nodeagent/lifecycle/podevents"
	"github.com/seed81659283/nodeagent/nodeapi/podsapi"
	"github.com/seed81659283/nodeagent/nodeapi/prom"
	"github.com/seed81659283/nodeagent/nodeapi/prom/usage"
	"github.com/seed81659283/nodeagent/pleg"
	"github.com/seed81659283/nodeagent/probe"
	"github.com/seed81659283/nodeagent/probe/podprobe"
	"github.com/seed81659283/nodeagent/stats"
	"github.com/seed81659283/nodeagent/volume/csi"
)

// A required argument that is nil is an error where the constructor returns one, and a panic with the same words where it does not. So
// is a nil pointer, of a variable that was not set yet.
func TestNilArguments(t *testing.T) {
	rt, node := critest.New(critest.Options{}), evictiontest.NewNode(evictiontest.Options{})
	tree := cgroupstest.New(cgroupstest.Options{})
	generator := pleg.New(rt, pleg.Options{})
	source, err := apiserver.New(&rest.Config{Host: "http://127.0.0.1:1"}, apiserver.Options{NodeName: "n1"})
	require.NoError(t, err)
	objects, err := source.Objects(apiserver.ObjectsOptions{})
	require.NoError(t, err)
	var unset *remote.Client
	var noObjects *apiserver.Objects
	var noPods *lifecycle.Reconciler
	for want, construct := range map[string]func() error{
		"lifecycle.New: argument rt":                func() error { return only(lifecycle.New(nil, generator, lifecycle.Options{})) },
		"lifecycle.New: argument rt is nil":         func() error { return only(lifecycle.New(unset, generator, lifecycle.Options{})) },
		"lifecycle.New: argument observer":          func() error { return only(lifecycle.New(rt, nil, lifecycle.Options{})) },
		"podtree.New: argument w":                   func() error { return only(podtree.New(nil, nil, podtree.Options{})) },
		"eviction.New: argument observer":           func() error { return only(eviction.New(nil, node, eviction.Options{})) },
		"eviction.New: argument actor":              func() error { return only(eviction.New(node, nil, eviction.Options{})) },
		"images.New: argument images":               func() error { return only(images.New(nil, rt, images.Options{})) },
		"images.New: argument puller":               func() error { return only(images.New(rt, nil, images.Options{})) },
		"logs.NewRotator: argument runtime":         func() error { return only(logs.NewRotator(nil, logs.RotatorOptions{})) },
		"gc.NewContainers: argument runtime":        func() error { return only(gc.NewContainers(nil, gc.ContainerOptions{})) },
		"gc.NewImages: argument images":             func() error { return only(gc.NewImages(nil, rt, gc.ImageOptions{})) },
		"gc.NewImages: argument lister":             func() error { return only(gc.NewImages(rt, nil, gc.ImageOptions{})) },
		"stats.New: argument c":                     func() error { return only(stats.New(nil, rt, stats.Options{})) },
		"stats.New: argument runtime":               func() error { return only(stats.New(tree, unset, stats.Options{})) },
		"probe.NewExec: argument execer":            func() error { return only(probe.NewExec(nil, probe.ExecConfig{})) },
		"prom.New: argument registry":               func() error { return only(prom.New(nil, prom.Options{})) },
		"prom.New: argument registry is nil":        func() error { return only(prom.New((*prometheus.Registry)(nil), prom.Options{})) },
		"usage.Cadvisor: argument source":           func() error { return only(usage.Cadvisor(nil, usage.Options{})) },
		"usage.Resource: argument source":           func() error { return only(usage.Resource(nil, usage.Options{})) },
		"pleg.New: argument l":                      func() error { return caught(func() { pleg.New(nil, pleg.Options{}) }) },
		"podprobe.NewPods: argument set":            func() error { return caught(func() { podprobe.NewPods(nil, podprobe.Options{}) }) },
		"podprobe.CRI: argument runtime":            func() error { return caught(func() { podprobe.CRI(nil) }) },
		"streaming.NewURLServer: argument sessions": func() error { return caught(func() { streaming.NewURLServer(nil, streaming.URLOptions{}) }) },
		"criserver.New: argument rt":                func() error { return caught(func() { criserver.New(nil, criserver.Options{}) }) },
		"podsapi.New: argument source":              func() error { return caught(func() { podsapi.New(nil, podsapi.Options{}) }) },
		"usage.Storage: argument measure":           func() error { return caught(func() { usage.Storage(nil, usage.Options{}) }) },
		"trustbundle.NewReader: argument from":      func() error { return caught(func() { trustbundle.NewReader(nil) }) },
		"token.NewCache: argument from":             func() error { return caught(func() { token.NewCache(nil, nil) }) },
		"podcert.New: argument from":                func() error { return caught(func() { podcert.New(nil, podcert.Options{}) }) },
		"csi.NewClusterNode: argument objects":      func() error { return caught(func() { csi.NewClusterNode(noObjects, nil) }) },
		"apiserver.NewExpansions: argument objects": func() error { return caught(func() { apiserver.NewExpansions(nil, nil) }) },
		"Source.Retainer: argument objects": func() error {
			return caught(func() { source.Retainer(nil, func() []lifecycle.PodState { return nil }) })
		},
		"Source.Retainer: argument pods": func() error { return caught(func() { source.Retainer(objects, nil) }) },
		"podevict.NewPreemptor: argument PreemptorOptions.Pods": func() error {
			return only(podevict.NewPreemptor(podevict.PreemptorOptions{Node: func() *corev1.Node { return nil }, Pods: noPods}))
		},
		"podevents.Images: argument record": func() error { return caught(func() { podevents.Images(nil) }) },
		"podevents.Probes: argument pods": func() error {
			return caught(func() { podevents.Probes(noPods, func(cri.PodIdentity, podevents.Event) {}) })
		},
		"podevents.Probes: argument record": func() error { return caught(func() { podevents.Probes(&lifecycle.Handle{}, nil) }) },
	} {
		t.Run(want, func(t *testing.T) {
			err := construct()
			require.ErrorContains(t, err, want)
			require.ErrorContains(t, err, "is nil: required, such as ")
		})
	}
}
