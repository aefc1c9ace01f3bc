// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package wiringtest_test

import (
	"bytes"
	"context"
	"log/slog"
	"os"
	"path/filepath"
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

	"github.com/seed81659283/nodeagent/agent"
	"github.com/seed81659283/nodeagent/agent/kubeletconfig"
	"github.com/seed81659283/nodeagent/apiserver"
	"github.com/seed81659283/nodeagent/apiserver/apiservertest"
	"github.com/seed81659283/nodeagent/apiserver/cert"
	"github.com/seed81659283/nodeagent/cgroups/cgroupstest"
	"github.com/seed81659283/nodeagent/cgroups/podtree"
	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/cri/critest"
	"github.com/seed81659283/nodeagent/cri/logs"
	"github.com/seed81659283/nodeagent/device"
	"github.com/seed81659283/nodeagent/device/plugin"
	"github.com/seed81659283/nodeagent/device/podresources"
	"github.com/seed81659283/nodeagent/eviction"
	"github.com/seed81659283/nodeagent/eviction/evictiontest"
	"github.com/seed81659283/nodeagent/internal/volume/podcert"
	"github.com/seed81659283/nodeagent/lifecycle"
	"github.com/seed81659283/nodeagent/lifecycle/podstore"
	"github.com/seed81659283/nodeagent/lifecycle/source"
	"github.com/seed81659283/nodeagent/nodestatus"
	"github.com/seed81659283/nodeagent/nodestatus/heartbeat"
	"github.com/seed81659283/nodeagent/nodestatus/machine"
	"github.com/seed81659283/nodeagent/pleg"
	"github.com/seed81659283/nodeagent/probe"
	"github.com/seed81659283/nodeagent/shutdown"
	"github.com/seed81659283/nodeagent/stats"
	"github.com/seed81659283/nodeagent/volume/csi"
	"github.com/seed81659283/nodeagent/volume/volumetest"
)

// TestMain keeps the tests on one processor: the race detector of Go 1.26 sometimes crashes when timers of a synctest bubble
// fire on several processors (golang/go#78156). Goroutines are still preempted and checked for races.
func TestMain(m *testing.M) {
	runtime.GOMAXPROCS(1)
	os.Exit(m.Run())
}

// unavailableSource returns a Source whose API server is unavailable.
func unavailableSource(t *testing.T, log *slog.Logger) *apiserver.Source {
	server := apiservertest.NewServer(apiservertest.Options{})
	server.SetUnavailable(true)
	source, err := apiserver.New(server.Config(), apiserver.Options{NodeName: "n1", Logger: log})
	require.NoError(t, err)
	return source
}

// A component whose Run is missing is logged once within 10 s, with the name of its Run, if it is used or can only be used
// with Run.
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
		"device.Allocator": func(t *testing.T, log *slog.Logger) {
			require.NoError(t, errorOf(device.New(device.Options{Logger: log})))
		},
		"plugin.Host": func(t *testing.T, log *slog.Logger) {
			require.NoError(t, errorOf(plugin.New(plugin.Options{Dir: dir, Receiver: &device.Allocator{}, Logger: log})))
		},
		"podresources.Server": func(t *testing.T, log *slog.Logger) {
			require.NoError(t, errorOf(podresources.New(podresources.Options{Socket: "/run/x.sock", Logger: log})))
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
			r.SetLogs([]logs.Log{{Path: "/x"}})
		},
		"podstore.Store": func(_ *testing.T, log *slog.Logger) {
			podstore.New(dir+"/store", podstore.Options{Logger: log}).Update(lifecycle.PodSet{Source: "file"})
		},
		"source.Dir": func(_ *testing.T, log *slog.Logger) { source.NewDir(dir, source.DirOptions{Logger: log}) },
		"source.HTTP": func(_ *testing.T, log *slog.Logger) {
			source.NewHTTP("http://127.0.0.1:1", source.HTTPOptions{Logger: log})
		},
		"stats.Collector": func(t *testing.T, log *slog.Logger) {
			c, err := stats.New(cgroupstest.New(cgroupstest.Options{}), rt, stats.Options{Logger: log, Root: dir, LogRoot: dir})
			require.NoError(t, err)
			_, _ = c.Summary(t.Context())
		},
		"heartbeat.Lease": func(t *testing.T, log *slog.Logger) {
			require.NoError(t, errorOf(heartbeat.NewLease(config, heartbeat.LeaseOptions{NodeName: "n1", Logger: log})))
		},
		"heartbeat.Reporter": func(t *testing.T, log *slog.Logger) {
			require.NoError(t, errorOf(heartbeat.NewReporter(config, heartbeat.ReporterOptions{Config: nodestatus.Config{Name: "n1"}, Logger: log})))
		},
		"agent.Agent": func(t *testing.T, log *slog.Logger) {
			c := agent.Config{Node: kubeletconfig.NodeConfiguration{NodeName: "n1", RootDir: t.TempDir()}}
			c.Kubelet.EnableServer = new(bool)
			host := nodestatus.Fixed{Info: machine.Info{CPUs: 4, Memory: 8 << 30}}
			require.NoError(t, errorOf(agent.New(t.Context(), c, agent.Options{
				Runtime: critest.New(critest.Options{}), Sources: []source.Source{source.Pods("code", nil)}, Machine: host, Ephemeral: true, Logger: log,
			})))
		},
		"shutdown.Inhibitor": func(t *testing.T, log *slog.Logger) {
			require.NoError(t, errorOf(shutdown.New(shutdown.Options{
				Periods: shutdown.Periods(time.Second, 0), Pods: func() []*corev1.Pod { return nil },
				Stop: func(context.Context, *corev1.Pod, time.Duration) error { return nil }, Logger: log,
			})))
		},
		"cert.Client": func(t *testing.T, log *slog.Logger) {
			dir := t.TempDir()
			bootstrap := filepath.Join(dir, "bootstrap.conf")
			require.NoError(t, os.WriteFile(bootstrap, []byte("apiVersion: v1\nkind: Config\ncurrent-context: c\ncontexts: [{name: c, context: {cluster: k, user: u}}]\n"+
				"clusters: [{name: k, cluster: {server: 'https://127.0.0.1:1'}}]\nusers: [{name: u, user: {token: t}}]\n"), 0o600))
			require.NoError(t, errorOf(cert.NewClient(cert.ClientOptions{
				NodeName: "n1", Kubeconfig: filepath.Join(dir, "kubelet.conf"), BootstrapKubeconfig: bootstrap, Dir: filepath.Join(dir, "pki"), Logger: log,
			})))
		},
		"cert.Serving": func(t *testing.T, log *slog.Logger) {
			require.NoError(t, errorOf(cert.NewServing(config, cert.ServingOptions{
				NodeName: "n1", Addresses: func() []corev1.NodeAddress { return nil }, Dir: t.TempDir(), Logger: log,
			})))
		},
		"podcert.Keeper": func(t *testing.T, log *slog.Logger) {
			pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: "a"}}
			pod.Spec.Volumes = []corev1.Volume{{Name: "tls", VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{
				Sources: []corev1.VolumeProjection{{PodCertificate: &corev1.PodCertificateProjection{SignerName: "example.com/s"}}},
			}}}}
			_, err := podcert.New(&volumetest.Signer{}, podcert.Options{Logger: log}).Certificate(t.Context(), pod, "tls", 0)
			require.ErrorContains(t, err, "podcert.Keeper.Run is not running")
		},
		"csi.Plugin": func(t *testing.T, log *slog.Logger) {
			require.NoError(t, errorOf(csi.New(csi.Options{Registry: t.TempDir(), Logger: log})))
		},
		"csi.ClusterNode": func(t *testing.T, log *slog.Logger) {
			objects, err := unavailableSource(t, log).Objects(apiserver.ObjectsOptions{})
			require.NoError(t, err)
			require.NoError(t, csi.NewClusterNode(objects, log).InstallDriver(t.Context(), csi.NodeInfo{Driver: "d", NodeID: "1"}))
		},
		"apiserver.Objects": func(t *testing.T, log *slog.Logger) {
			require.NoError(t, errorOf(unavailableSource(t, log).Objects(apiserver.ObjectsOptions{})))
		},
		"apiserver.Expansions": func(t *testing.T, log *slog.Logger) {
			objects, err := unavailableSource(t, log).Objects(apiserver.ObjectsOptions{})
			require.NoError(t, err)
			apiserver.NewExpansions(objects, log).Expanded(&corev1.PersistentVolumeClaim{}, nil, 1)
		},
		"apiserver.Recorder": func(t *testing.T, log *slog.Logger) {
			unavailableSource(t, log).Recorder(apiserver.RecorderOptions{}).Event(corev1.ObjectReference{Kind: "Node", Name: "n1"}, corev1.EventTypeNormal, "Starting", "")
		},
		"apiserver.Statuses": func(t *testing.T, log *slog.Logger) {
			statuses, err := unavailableSource(t, log).Statuses(apiserver.StatusesOptions{
				Pods: func() []lifecycle.PodState { return nil }, MayRun: func(string) bool { return false },
			})
			require.NoError(t, err)
			statuses.PodRemoved(cri.PodIdentity{UID: "a"})
		},
		"apiserver.Mirrors": func(t *testing.T, log *slog.Logger) {
			mirrors, err := unavailableSource(t, log).Mirrors(apiserver.MirrorsOptions{Node: func() *corev1.Node { return nil }})
			require.NoError(t, err)
			mirrors.Set(lifecycle.PodSet{Source: "file"})
		},
		"apiserver.Pods": func(t *testing.T, log *slog.Logger) {
			require.NoError(t, errorOf(apiserver.New(config, apiserver.Options{NodeName: "n1", Logger: log})))
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
