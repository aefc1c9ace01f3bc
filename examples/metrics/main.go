// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Metrics serves the metrics pages of a kubelet for a simulated node: it runs the pods of manifests in memory, with probes and
// cgroups. It needs no cluster, no container runtime and no root.
//
//	metrics -manifests examples/minimal/manifests -listen 127.0.0.1:9100
//	curl http://127.0.0.1:9100/metrics
//	curl http://127.0.0.1:9100/metrics/probes
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/seed81659283/nodeagent/cgroups/cgroupstest"
	"github.com/seed81659283/nodeagent/cgroups/podtree"
	"github.com/seed81659283/nodeagent/cri/critest"
	"github.com/seed81659283/nodeagent/lifecycle"
	"github.com/seed81659283/nodeagent/lifecycle/source"
	"github.com/seed81659283/nodeagent/nodeapi/prom"
	"github.com/seed81659283/nodeagent/pleg"
	"github.com/seed81659283/nodeagent/probe"
	"github.com/seed81659283/nodeagent/probe/podprobe"
)

func main() {
	listen := flag.String("listen", "127.0.0.1:9100", "address of the pages")
	manifests := flag.String("manifests", "", "directory of pod manifests, or a single file")
	flag.Parse()
	if *manifests == "" || flag.NArg() > 0 {
		fmt.Fprintf(os.Stderr, "metrics: -manifests is required; unexpected arguments: %q\n", flag.Args())
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	if err := runNode(ctx, *listen, *manifests); err != nil {
		fmt.Fprintln(os.Stderr, "metrics:", err)
		os.Exit(1)
	}
}

func runNode(ctx context.Context, listen, manifests string) error {
	var pods *lifecycle.Reconciler
	page, probesPage := prometheus.NewRegistry(), prometheus.NewRegistry()
	metrics, err := prom.New(page, prom.Options{Probes: probesPage, Pods: func() []lifecycle.PodState { return pods.Pods() }})
	if err == nil {
		err = prom.RegisterProcess(page, "example")
	}
	if err != nil {
		return err
	}

	runtime := critest.New(critest.Options{})
	generator := pleg.New(runtime, pleg.Options{Hooks: metrics.PLEG()})
	set := probe.NewSet(probe.Options{Hooks: metrics.Probes()})
	probes := podprobe.NewPods(set, podprobe.Options{Execer: podprobe.CRI(runtime)})
	tree, err := podtree.New(cgroupstest.New(cgroupstest.Options{}), nil, podtree.Options{Hooks: metrics.Cgroups(2), Capacity: corev1.ResourceList{
		corev1.ResourceCPU: resource.MustParse("4"), corev1.ResourceMemory: resource.MustParse("8Gi"),
	}})
	if err != nil {
		return err
	}
	pods, err = lifecycle.New(runtime, generator, lifecycle.Options{
		Owner: "metrics", Sources: []string{"file"}, Probes: probes, Cgroups: tree, Hooks: metrics.Lifecycle(), NoMounts: true,
	})
	if err != nil {
		return err
	}
	if err := tree.Setup(ctx); err != nil {
		return err
	}
	wanted := func(ctx context.Context) error {
		return source.NewDir(manifests, source.DirOptions{NodeName: "memory"}).Run(ctx, func(u source.Update) {
			for _, err := range u.Errs {
				fmt.Fprintln(os.Stderr, "metrics:", err)
			}
			if err := pods.Set(u.PodSet); err != nil {
				fmt.Fprintln(os.Stderr, "metrics:", err)
			}
		})
	}
	mux := http.NewServeMux()
	mux.Handle("/metrics", prom.Page(page, prom.PageOptions{}))
	mux.Handle("/metrics/probes", prom.Page(probesPage, prom.PageOptions{}))
	return servePages(ctx, listen, mux, generator.Run, set.Run, tree.Run, pods.Run, wanted)
}

// servePages serves the pages and runs the parts of the agent until ctx ends or a part fails.
func servePages(ctx context.Context, listen string, pages http.Handler, parts ...func(context.Context) error) error {
	l, err := net.Listen("tcp", listen)
	if err != nil {
		return err
	}
	fmt.Printf("serving http://%s/metrics\n", l.Addr())
	ctx, cancel := context.WithCancelCause(ctx)
	var wg sync.WaitGroup
	defer wg.Wait()
	for _, part := range parts {
		wg.Go(func() { cancel(part(ctx)) })
	}
	server := &http.Server{Handler: pages, ReadHeaderTimeout: 10 * time.Second}
	wg.Go(func() { cancel(server.Serve(l)) })
	<-ctx.Done()
	_ = server.Close()
	if cause := context.Cause(ctx); !errors.Is(cause, context.Canceled) && !errors.Is(cause, http.ErrServerClosed) {
		return cause
	}
	return nil
}
