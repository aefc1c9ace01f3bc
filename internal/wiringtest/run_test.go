// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package wiringtest_test

import (
	"bytes"
	"log/slog"
	"os"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/seed81659283/nodeagent/cgroups/cgroupstest"
	"github.com/seed81659283/nodeagent/cgroups/podtree"
	"github.com/seed81659283/nodeagent/cri/critest"
	"github.com/seed81659283/nodeagent/cri/logs"
	"github.com/seed81659283/nodeagent/eviction"
	"github.com/seed81659283/nodeagent/eviction/evictiontest"
	"github.com/seed81659283/nodeagent/lifecycle"
	"github.com/seed81659283/nodeagent/lifecycle/apisource"
	"github.com/seed81659283/nodeagent/lifecycle/podset"
	"github.com/seed81659283/nodeagent/lifecycle/podstore"
	"github.com/seed81659283/nodeagent/lifecycle/source"
	"github.com/seed81659283/nodeagent/nodestatus"
	"github.com/seed81659283/nodeagent/nodestatus/heartbeat"
	"github.com/seed81659283/nodeagent/nodestatus/summary"
	"github.com/seed81659283/nodeagent/pleg"
	"github.com/seed81659283/nodeagent/probe"
)

// TestMain keeps the tests on one processor: the race detector of Go 1.26 now and then crashes when timers of a
// synctest bubble fire on several (golang/go#78156). Goroutines are still preempted and still checked for races.
func TestMain(m *testing.M) {
	runtime.GOMAXPROCS(1)
	os.Exit(m.Run())
}

// A component that is used, or made for nothing but Run, and does not run is in the log once within 10 s, with the name of its Run.
func TestRunIsLeftOut(t *testing.T) {
	dir := t.TempDir()
	config := &rest.Config{Host: "http://127.0.0.1:1"}
	tree := podtree.Options{Capacity: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("4"), corev1.ResourceMemory: resource.MustParse("8Gi")}}
	rt := critest.New(critest.Options{})
	for name, use := range map[string]func(*testing.T, *slog.Logger){
		"lifecycle.Reconciler": func(t *testing.T, log *slog.Logger) {
			r, err := lifecycle.New(rt, pleg.New(rt, pleg.Options{}), lifecycle.Options{Logger: log})
			require.NoError(t, err)
			require.NoError(t, r.Set(lifecycle.PodSet{Source: "file"}))
		},
		"podtree.Tree": func(t *testing.T, log *slog.Logger) {
			o := tree
			o.Logger = log
			cgroups, err := podtree.New(cgroupstest.New(cgroupstest.Options{}), nil, o)
			require.NoError(t, err)
			require.NoError(t, cgroups.Setup(t.Context()))
			require.NoError(t, cgroups.Ensure(t.Context(), &corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: "a"}}))
		},
		"eviction.Evictor": func(t *testing.T, log *slog.Logger) {
			node := evictiontest.NewNode(evictiontest.Options{})
			_, err := eviction.New(node, node, eviction.Options{Logger: log})
			require.NoError(t, err)
		},
		"pleg.Generator": func(_ *testing.T, log *slog.Logger) { _, _ = pleg.New(rt, pleg.Options{Logger: log}).Pods() },
		"probe.Set": func(t *testing.T, log *slog.Logger) {
			prober, err := probe.NewTCP(probe.TCPConfig{Host: "127.0.0.1", Port: 1})
			require.NoError(t, err)
			require.NoError(t, probe.NewSet(probe.Options{Logger: log}).Sync([]probe.Target{{
				Key: probe.Key{PodUID: "a", Container: "c", Kind: probe.Liveness}, Prober: prober, Spec: probe.Spec{Period: time.Second},
			}}))
		},
		"logs.Rotator": func(t *testing.T, log *slog.Logger) {
			r, err := logs.NewRotator(rt, logs.RotatorOptions{Logger: log})
			require.NoError(t, err)
			r.Set([]logs.Log{{Path: "/x"}})
		},
		"podstore.Store": func(_ *testing.T, log *slog.Logger) {
			podstore.New(dir+"/store", podstore.Options{Logger: log}).Update(podset.Set{Source: "file"})
		},
		"source.Dir": func(_ *testing.T, log *slog.Logger) { source.NewDir(dir, source.DirOptions{Logger: log}) },
		"source.HTTP": func(_ *testing.T, log *slog.Logger) {
			source.NewHTTP("http://127.0.0.1:1", source.HTTPOptions{Logger: log})
		},
		"summary.Collector": func(t *testing.T, log *slog.Logger) {
			c, err := summary.New(cgroupstest.New(cgroupstest.Options{}), rt, summary.Options{Logger: log, Root: dir, LogRoot: dir})
			require.NoError(t, err)
			_, _ = c.Summary(t.Context())
		},
		"heartbeat.Lease": func(t *testing.T, log *slog.Logger) {
			require.NoError(t, only(heartbeat.NewLease(config, heartbeat.LeaseOptions{NodeName: "n1", Logger: log})))
		},
		"heartbeat.Reporter": func(t *testing.T, log *slog.Logger) {
			require.NoError(t, only(heartbeat.NewReporter(config, heartbeat.ReporterOptions{Config: nodestatus.Config{Name: "n1"}, Logger: log})))
		},
		"apisource.Pods": func(t *testing.T, log *slog.Logger) {
			require.NoError(t, only(apisource.New(config, apisource.Options{NodeName: "n1", Logger: log})))
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var log bytes.Buffer
				use(t, slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelError})))
				time.Sleep(10 * time.Second)
				synctest.Wait()
				require.Equal(t, 1, strings.Count(log.String(), name+".Run is not running"), log.String())
			})
		})
	}
}
