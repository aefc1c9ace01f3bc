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

// A required argument that is nil is an error of a constructor that returns errors, and a panic with the same text
// otherwise. A nil pointer in an interface is treated like nil.
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
		"lifecycle.New: argument rt":                func() error { return errorOf(lifecycle.New(nil, generator, lifecycle.Options{})) },
		"lifecycle.New: argument rt is nil":         func() error { return errorOf(lifecycle.New(unset, generator, lifecycle.Options{})) },
		"lifecycle.New: argument observer":          func() error { return errorOf(lifecycle.New(rt, nil, lifecycle.Options{})) },
		"podtree.New: argument w":                   func() error { return errorOf(podtree.New(nil, nil, podtree.Options{})) },
		"eviction.New: argument observer":           func() error { return errorOf(eviction.New(nil, node, eviction.Options{})) },
		"eviction.New: argument actor":              func() error { return errorOf(eviction.New(node, nil, eviction.Options{})) },
		"images.New: argument images":               func() error { return errorOf(images.New(nil, rt, images.Options{})) },
		"images.New: argument puller":               func() error { return errorOf(images.New(rt, nil, images.Options{})) },
		"logs.NewRotator: argument runtime":         func() error { return errorOf(logs.NewRotator(nil, logs.RotatorOptions{})) },
		"gc.NewContainers: argument runtime":        func() error { return errorOf(gc.NewContainers(nil, gc.ContainerOptions{})) },
		"gc.NewImages: argument images":             func() error { return errorOf(gc.NewImages(nil, rt, gc.ImageOptions{})) },
		"gc.NewImages: argument lister":             func() error { return errorOf(gc.NewImages(rt, nil, gc.ImageOptions{})) },
		"stats.New: argument c":                     func() error { return errorOf(stats.New(nil, rt, stats.Options{})) },
		"stats.New: argument runtime":               func() error { return errorOf(stats.New(tree, unset, stats.Options{})) },
		"probe.NewExec: argument execer":            func() error { return errorOf(probe.NewExec(nil, probe.ExecConfig{})) },
		"prom.New: argument registry":               func() error { return errorOf(prom.New(nil, prom.Options{})) },
		"prom.New: argument registry is nil":        func() error { return errorOf(prom.New((*prometheus.Registry)(nil), prom.Options{})) },
		"usage.Cadvisor: argument source":           func() error { return errorOf(usage.Cadvisor(nil, usage.Options{})) },
		"usage.Resource: argument source":           func() error { return errorOf(usage.Resource(nil, usage.Options{})) },
		"pleg.New: argument l":                      func() error { return recoverError(func() { pleg.New(nil, pleg.Options{}) }) },
		"podprobe.NewPods: argument set":            func() error { return recoverError(func() { podprobe.NewPods(nil, podprobe.Options{}) }) },
		"podprobe.CRI: argument runtime":            func() error { return recoverError(func() { podprobe.CRI(nil) }) },
		"streaming.NewURLServer: argument sessions": func() error { return recoverError(func() { streaming.NewURLServer(nil, streaming.URLOptions{}) }) },
		"criserver.New: argument rt":                func() error { return recoverError(func() { criserver.New(nil, criserver.Options{}) }) },
		"podsapi.New: argument source":              func() error { return recoverError(func() { podsapi.New(nil, podsapi.Options{}) }) },
		"usage.Storage: argument measure":           func() error { return recoverError(func() { usage.Storage(nil, usage.Options{}) }) },
		"trustbundle.NewReader: argument from":      func() error { return recoverError(func() { trustbundle.NewReader(nil) }) },
		"token.NewCache: argument from":             func() error { return recoverError(func() { token.NewCache(nil, nil) }) },
		"podcert.New: argument from":                func() error { return recoverError(func() { podcert.New(nil, podcert.Options{}) }) },
		"csi.NewClusterNode: argument objects":      func() error { return recoverError(func() { csi.NewClusterNode(noObjects, nil) }) },
		"apiserver.NewExpansions: argument objects": func() error { return recoverError(func() { apiserver.NewExpansions(nil, nil) }) },
		"Source.Retainer: argument objects": func() error {
			return recoverError(func() { source.Retainer(nil, func() []lifecycle.PodState { return nil }) })
		},
		"Source.Retainer: argument pods": func() error { return recoverError(func() { source.Retainer(objects, nil) }) },
		"podevict.NewPreemptor: argument PreemptorOptions.Pods": func() error {
			return errorOf(podevict.NewPreemptor(podevict.PreemptorOptions{Node: func() *corev1.Node { return nil }, Pods: noPods}))
		},
		"podevents.Images: argument record": func() error { return recoverError(func() { podevents.Images(nil) }) },
		"podevents.Probes: argument pods": func() error {
			return recoverError(func() { podevents.Probes(noPods, func(cri.PodIdentity, podevents.Event) {}) })
		},
		"podevents.Probes: argument record": func() error { return recoverError(func() { podevents.Probes(&lifecycle.Handle{}, nil) }) },
	} {
		t.Run(want, func(t *testing.T) {
			err := construct()
			require.ErrorContains(t, err, want)
			require.ErrorContains(t, err, "is nil: required, such as ")
		})
	}
}
