// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package wiringtest_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"

	"github.com/seed81659283/nodeagent/apiserver"
	"github.com/seed81659283/nodeagent/apiserver/cert"
	"github.com/seed81659283/nodeagent/cgroups"
	"github.com/seed81659283/nodeagent/cgroups/cgroupstest"
	"github.com/seed81659283/nodeagent/cgroups/cpus"
	"github.com/seed81659283/nodeagent/cgroups/podtree"
	"github.com/seed81659283/nodeagent/cni"
	"github.com/seed81659283/nodeagent/cri/streaming"
	"github.com/seed81659283/nodeagent/device"
	"github.com/seed81659283/nodeagent/device/placement"
	"github.com/seed81659283/nodeagent/device/plugin"
	"github.com/seed81659283/nodeagent/device/poddevice"
	"github.com/seed81659283/nodeagent/device/podresources"
	"github.com/seed81659283/nodeagent/eviction/podevict"
	"github.com/seed81659283/nodeagent/lifecycle"
	"github.com/seed81659283/nodeagent/nodeapi"
	"github.com/seed81659283/nodeagent/nodeapi/auth"
	"github.com/seed81659283/nodeagent/nodestatus/heartbeat"
	"github.com/seed81659283/nodeagent/pleg"
	"github.com/seed81659283/nodeagent/shutdown"
	"github.com/seed81659283/nodeagent/volume"
	"github.com/seed81659283/nodeagent/volume/csi"
)

// reviewer implements auth.AccessReviewer without a method that works.
type reviewer struct{ auth.AccessReviewer }

// recoverError calls f and returns the panic of f as an error, or nil if f does not panic.
func recoverError(f func()) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("%v", p)
		}
	}()
	f()
	return nil
}

// errorOf returns err, the second result of a call.
func errorOf[T any](_ T, err error) error { return err }

// missing returns a function per required option that calls the constructor without this option, but with all other required
// options.
func missing(t *testing.T) map[string]func() error {
	t.Helper()
	config := &rest.Config{Host: "http://127.0.0.1:1"}
	source, err := apiserver.New(config, apiserver.Options{NodeName: "n1"})
	if err != nil {
		t.Fatal(err)
	}
	periods := []shutdown.Period{{GracePeriod: time.Second}}
	pods := func() []*corev1.Pod { return nil }
	stop := func(context.Context, *corev1.Pod, time.Duration) error { return nil }
	node := func(change func(*podevict.NodeOptions)) error {
		o := podevict.NodeOptions{
			Measurer: struct{ podevict.Measurer }{}, Pods: func() podevict.Pods { return nil },
			Cgroups: cgroupstest.New(cgroupstest.Options{}), Path: func(*corev1.Pod) cgroups.Path { return "" },
		}
		change(&o)
		return errorOf(podevict.NewNode(o))
	}
	preemptor := func(change func(*podevict.PreemptorOptions)) error {
		o := podevict.PreemptorOptions{Node: func() *corev1.Node { return nil }, Pods: &lifecycle.Handle{}}
		change(&o)
		return errorOf(podevict.NewPreemptor(o))
	}
	statuses := func() []lifecycle.PodState { return nil }
	runs := func(string) bool { return false }
	placed := func(change func(*placement.Options)) error {
		o := placement.Options{Devices: &poddevice.Devices{}, Policy: &cpus.Policy{}, Containers: &pleg.Generator{}}
		change(&o)
		return errorOf(placement.New(o))
	}
	running := func(context.Context) ([]cpus.RunningContainer, error) { return nil, nil }
	return map[string]func() error{
		"placement.Options.Devices":    func() error { return placed(func(o *placement.Options) { o.Devices = nil }) },
		"placement.Options.Policy":     func() error { return placed(func(o *placement.Options) { o.Policy = nil }) },
		"placement.Options.Containers": func() error { return placed(func(o *placement.Options) { o.Containers = nil }) },
		"cpus.WriterOptions.Running":   func() error { return errorOf(cpus.NewWriter(nil, cpus.WriterOptions{})) },
		"cpus.WriterOptions.Write":     func() error { return errorOf(cpus.NewWriter(nil, cpus.WriterOptions{Running: running})) },
		"podtree.Options.Capacity": func() error {
			err := errorOf(podtree.New(cgroupstest.New(cgroupstest.Options{}), nil, podtree.Options{}))
			return fmt.Errorf("Capacity: %w", err) // the error names cpu and memory, not Capacity
		},
		"cni.PluginOptions.CacheDir":     func() error { return recoverError(func() { cni.NewPlugins(cni.PluginOptions{}) }) },
		"podevict.NodeOptions.Measurer":  func() error { return node(func(o *podevict.NodeOptions) { o.Measurer = nil }) },
		"podevict.NodeOptions.Pods":      func() error { return node(func(o *podevict.NodeOptions) { o.Pods = nil }) },
		"podevict.NodeOptions.Path":      func() error { return node(func(o *podevict.NodeOptions) { o.Path = nil }) },
		"podevict.NodeOptions.Cgroups":   func() error { return node(func(o *podevict.NodeOptions) { o.Cgroups = nil }) },
		"podevict.PreemptorOptions.Node": func() error { return preemptor(func(o *podevict.PreemptorOptions) { o.Node = nil }) },
		"podevict.PreemptorOptions.Pods": func() error { return preemptor(func(o *podevict.PreemptorOptions) { o.Pods = nil }) },
		"apiserver.Options.NodeName":     func() error { return errorOf(apiserver.New(config, apiserver.Options{})) },
		"apiserver.StatusesOptions.Pods": func() error { return errorOf(source.Statuses(apiserver.StatusesOptions{MayRun: runs})) },
		"apiserver.StatusesOptions.MayRun": func() error {
			return errorOf(source.Statuses(apiserver.StatusesOptions{Pods: statuses}))
		},
		"apiserver.MirrorsOptions.Node": func() error { return errorOf(source.Mirrors(apiserver.MirrorsOptions{})) },
		"auth.Options.NodeName":         func() error { return errorOf(auth.New(auth.Options{Anonymous: true, AccessReviewer: reviewer{}})) },
		"auth.Options.AccessReviewer":   func() error { return errorOf(auth.New(auth.Options{Anonymous: true})) },
		"nodeapi.Options.Access":        func() error { return errorOf(nodeapi.New(nodeapi.Options{})) },
		"nodeapi.TLSOptions.GetCertificate": func() error {
			return errorOf(nodeapi.TLSConfig(nodeapi.TLSOptions{}))
		},
		"streaming.Options.Streamer":       func() error { return errorOf(streaming.New(streaming.Options{})) },
		"heartbeat.ReporterOptions.Config": func() error { return errorOf(heartbeat.NewReporter(config, heartbeat.ReporterOptions{})) },
		"heartbeat.LeaseOptions.NodeName":  func() error { return errorOf(heartbeat.NewLease(config, heartbeat.LeaseOptions{})) },
		"shutdown.Options.Periods":         func() error { return errorOf(shutdown.New(shutdown.Options{Pods: pods, Stop: stop})) },
		"shutdown.Options.Pods":            func() error { return errorOf(shutdown.New(shutdown.Options{Periods: periods, Stop: stop})) },
		"shutdown.Options.Stop":            func() error { return errorOf(shutdown.New(shutdown.Options{Periods: periods, Pods: pods})) },
		"cert.ServingOptions.NodeName": func() error {
			return errorOf(cert.NewServing(config, cert.ServingOptions{Addresses: func() []corev1.NodeAddress { return nil }}))
		},
		"cert.ServingOptions.Addresses": func() error { return errorOf(cert.NewServing(config, cert.ServingOptions{NodeName: "n1"})) },
		"cert.ClientOptions.NodeName":   func() error { return errorOf(cert.NewClient(cert.ClientOptions{Kubeconfig: "/x"})) },
		"cert.ClientOptions.Kubeconfig": func() error { return errorOf(cert.NewClient(cert.ClientOptions{NodeName: "n1"})) },
		"plugin.Options.Dir":            func() error { return errorOf(plugin.New(plugin.Options{Receiver: &device.Allocator{}})) },
		"plugin.Options.Receiver":       func() error { return errorOf(plugin.New(plugin.Options{Dir: "/x"})) },
		"podresources.Options.Socket":   func() error { return errorOf(podresources.New(podresources.Options{})) },
		"csi.Options.Registry":          func() error { return errorOf(csi.New(csi.Options{})) },
		"volume.Options.Root":           func() error { return errorOf(volume.New(volume.Options{})) },
		"apiserver.PartsOptions.NodeName": func() error {
			return errorOf(apiserver.NewParts(config, apiserver.PartsOptions{Pods: &lifecycle.Handle{}, Node: func() *corev1.Node { return nil }}))
		},
		"apiserver.PartsOptions.Pods": func() error {
			return errorOf(apiserver.NewParts(config, apiserver.PartsOptions{NodeName: "n1", Node: func() *corev1.Node { return nil }}))
		},
		"apiserver.PartsOptions.Node": func() error {
			return errorOf(apiserver.NewParts(config, apiserver.PartsOptions{NodeName: "n1", Pods: &lifecycle.Handle{}}))
		},
	}
}
