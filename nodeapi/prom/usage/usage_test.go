// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package usage_test

import (
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/seed81659283/nodeagent/cgroups"
	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/internal/promtest"
	"github.com/seed81659283/nodeagent/nodeapi/prom/usage"
	"github.com/seed81659283/nodeagent/nodestatus/machine"
	"github.com/seed81659283/nodeagent/stats"
)

// fakeSource is a source with values set by the test.
type fakeSource struct {
	samples []stats.Sample
	summary statsapi.Summary
	err     error
	dead    error         // error of a file system
	parts   cgroups.Parts // parts of the last call
}

func (m *fakeSource) Samples(_ context.Context, parts cgroups.Parts) ([]stats.Sample, error) {
	m.parts = parts
	return m.samples, m.err
}

func (m *fakeSource) Filesystems(_ context.Context, paths []string) (map[string]stats.Filesystem, error) {
	all := map[string]stats.Filesystem{}
	for _, path := range paths {
		if path != "/hangs" {
			all[path] = stats.Filesystem{CapacityBytes: 1000, FreeBytes: 400, Inodes: 20, InodesFree: 15}
		}
	}
	return all, m.dead
}

func (m *fakeSource) CPUAndMemory(context.Context) (*statsapi.Summary, error) {
	return &m.summary, m.err
}

func (m *fakeSource) Summary() (*statsapi.Summary, error) { return &m.summary, m.err }

var at = time.UnixMilli(1_700_000_000_123)

// fullStats returns the counters of a cgroup, none of which is zero.
func fullStats() cgroups.Stats {
	limit := &cgroups.CPULimit{Weight: 39, Quota: 20_000, Period: 100_000}
	p := &cgroups.Pressure{Some: cgroups.PressureLine{Total: 1500 * time.Microsecond}, Full: cgroups.PressureLine{Total: 500 * time.Microsecond}}
	return cgroups.Stats{
		CPU: cgroups.CPUStat{
			Usage: 3_500_000_000, User: 2_000_000_000, System: 1_500_000_000, Periods: 10, Throttled: 4, ThrottledTime: 250_000_000,
			Bursts: 2, BurstTime: 1_000_000, Pressure: p, Limit: limit,
		},
		Memory: cgroups.MemoryStats{
			Current: 1000, Peak: 2000, Swap: 50, Max: new(int64(4096)), Min: new(int64(2048)), SwapMax: new(int64(cgroups.Unlimited)), Pressure: p,
			Stat: cgroups.MemoryStat{
				Anon: 300, File: 600, Kernel: 70, FileMapped: 20, FileDirty: 5, FileWriteback: 6, ActiveFile: 250, InactiveFile: 350,
				PageFaults: 12, MajorPageFaults: 3, RefaultAnon: 1, RefaultFile: 2, PagesScanned: 8, PagesReclaimed: 7,
			},
			Events: cgroups.MemoryEvents{High: 9, Max: 11, OOM: 2, OOMKill: 1},
		},
		Pids: cgroups.PidsStats{Current: 6, Max: new(int64(100)), Procs: []int{1, 2}},
		IO: cgroups.IOStats{Pressure: p, Devices: []cgroups.IODevice{
			{Major: 8, Minor: 1, ReadBytes: 4096, WriteBytes: 8192, Reads: 1, Writes: 2},
		}},
	}
}

// newFakeNode returns a node with one pod.
func newFakeNode() *fakeSource {
	pod, sandbox := cri.PodIdentity{Namespace: "ns", Name: "web", UID: "u1"}, cri.Sandbox{ID: "s1", CreatedAt: at.Add(-time.Hour)}
	path := cgroups.PodPath("", cgroups.Burstable, "u1")
	sample := func(leaf, container string) stats.Sample {
		s := stats.Sample{Pod: pod, Sandbox: sandbox, Path: path, Leaf: leaf, Time: at, Stats: fullStats()}
		if container != "" {
			s.Container = cri.Container{ID: leaf, Name: container, Image: cri.ImageSpec{Image: "nginx:1"}, CreatedAt: at.Add(-time.Minute)}
		}
		return s
	}
	whole := sample("", "")
	whole.Interfaces = []stats.Interface{{Name: "eth0", RxBytes: 10, RxPackets: 2, RxErrors: 1, TxBytes: 20, TxDropped: 3}}
	amount := func(n uint64) *uint64 { return &n }
	when := metav1.NewTime(at)
	cpu := &statsapi.CPUStats{Time: when, UsageCoreNanoSeconds: amount(3_500_000_000)}
	memory := &statsapi.MemoryStats{Time: when, WorkingSetBytes: amount(650)}
	swap := &statsapi.SwapStats{Time: when, SwapUsageBytes: amount(50), SwapAvailableBytes: amount(150)}
	return &fakeSource{
		samples: []stats.Sample{
			{Time: at, Stats: fullStats(), Interfaces: []stats.Interface{{Name: "eth0", RxBytes: 1}}},
			{Path: "kubepods", Time: at, Stats: fullStats()},
			{Path: "system", Leaf: "containerd.service", Time: at},
			whole, sample("s1", ""), sample("c1", "main"),
		},
		summary: statsapi.Summary{
			Node: statsapi.NodeStats{CPU: cpu, Memory: memory, Swap: swap},
			Pods: []statsapi.PodStats{{
				PodRef: statsapi.PodReference{Namespace: "ns", Name: "web", UID: "u1"}, CPU: cpu, Memory: memory, Swap: swap,
				Containers: []statsapi.ContainerStats{
					{Name: "main", StartTime: when, CPU: cpu, Memory: memory, Swap: swap, Logs: &statsapi.FsStats{UsedBytes: amount(77)}},
					{Name: "unmeasured"},
				},
				VolumeStats: []statsapi.VolumeStats{
					{Name: "scratch", FsStats: statsapi.FsStats{UsedBytes: amount(1)}},
					{Name: "data", PVCRef: &statsapi.PVCReference{Namespace: "ns", Name: "claim"}, FsStats: statsapi.FsStats{UsedBytes: amount(5), CapacityBytes: amount(9)}},
					{Name: "again", PVCRef: &statsapi.PVCReference{Namespace: "ns", Name: "claim"}, FsStats: statsapi.FsStats{UsedBytes: amount(5)}},
				},
			}},
		},
	}
}

func cadvisor(t *testing.T, source usage.Source, o usage.Options) string {
	t.Helper()
	if o.Proc == nil {
		o.Proc = fakeProc()
	}
	p, err := usage.Cadvisor(source, o)
	require.NoError(t, err)
	return scrapePage(t, p)
}

func resource(t *testing.T, source usage.Source, o usage.Options) string {
	t.Helper()
	p, err := usage.Resource(source, o)
	require.NoError(t, err)
	return scrapePage(t, p)
}

func scrapePage(t *testing.T, p *usage.Page) string {
	t.Helper()
	w := httptest.NewRecorder()
	p.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	require.Equal(t, 200, w.Code)
	require.Equal(t, "text/plain; version=0.0.4; charset=utf-8; escaping=underscores", w.Header().Get("Content-Type"))
	parsePage(t, w.Body.String())
	return w.Body.String()
}

// parsePage parses a page as Prometheus does, and checks that no series is duplicate.
func parsePage(t *testing.T, page string) map[string]*dto.MetricFamily {
	t.Helper()
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(strings.NewReader(page))
	require.NoError(t, err, "%.2000s", page)
	for name, f := range families {
		seen := map[string]bool{}
		for _, m := range f.GetMetric() {
			key := fmt.Sprint(m.GetLabel())
			require.False(t, seen[key], "%s %s", name, key)
			seen[key] = true
		}
	}
	return families
}

// seriesLines returns the lines of a metric.
func seriesLines(page, name string) (lines []string) {
	for line := range strings.Lines(page) {
		if strings.HasPrefix(line, name+"{") || strings.HasPrefix(line, name+" ") {
			lines = append(lines, strings.TrimSpace(line))
		}
	}
	return lines
}

// Each metric of the kubelet's pages is on ours, or the test has the reason for its absence.
func TestPagesHaveTheKubeletsMetrics(t *testing.T) {
	o := usage.Options{Machine: machine.Info{CPUs: 2, Cores: 1, Sockets: 1, Memory: 4, KernelVersion: "6.1", BootID: "b"}}
	for name, page := range map[string]string{"cadvisor": cadvisor(t, newFakeNode(), o), "resource": resource(t, newFakeNode(), o)} {
		t.Run(name, func(t *testing.T) {
			kubelet, err := promtest.Kubelet(name)
			require.NoError(t, err)
			ours, err := promtest.Parse(strings.NewReader(page))
			require.NoError(t, err)
			verdicts, err := os.ReadFile("testdata/" + name + ".txt")
			require.NoError(t, err)
			// On the machine of the kubelet's list, no cgroup had used a disk.
			beside := []string{"container_blkio_device_usage_total", "container_fs_reads_bytes_total", "container_fs_writes_bytes_total"}
			for _, problem := range promtest.Compare(kubelet, ours, string(verdicts), beside...) {
				t.Error(problem)
			}
		})
	}
}

func TestCadvisor(t *testing.T) {
	page := cadvisor(t, newFakeNode(), usage.Options{SandboxImage: "pause:3", Device: func(major, minor uint32) string {
		return map[uint32]string{8: "/dev/sda" + fmt.Sprint(minor)}[major]
	}})
	const (
		pod     = `container="",id="/kubepods/burstable/podu1",image="",name="",namespace="ns",pod="web"`
		sandbox = `container="",id="/kubepods/burstable/podu1/s1",image="pause:3",name="s1",namespace="ns",pod="web"`
		main    = `container="main",id="/kubepods/burstable/podu1/c1",image="nginx:1",name="c1",namespace="ns",pod="web"`
		root    = `container="",id="/",image="",name="",namespace="",pod=""`
		system  = `container="",id="/system/containerd.service",image="",name="",namespace="",pod=""`
		stamp   = " 1700000000123"
	)
	for name, want := range map[string]string{
		"container_cpu_usage_seconds_total":                main + `,cpu="total"} 3.5`,
		"container_cpu_user_seconds_total":                 pod + `} 2`,
		"container_cpu_cfs_throttled_seconds_total":        main + `} 0.25`,
		"container_memory_working_set_bytes":               main + `} 650`,
		"container_memory_swap":                            main + `} 50`,
		"container_memory_failures_total":                  main + `,failure_type="pgmajfault",scope="hierarchy"} 3`,
		"container_network_receive_bytes_total":            sandbox + `,interface="eth0"} 10`,
		"container_network_transmit_packets_dropped_total": sandbox + `,interface="eth0"} 3`,
		"container_fs_writes_total":                        main + `,device="/dev/sda1"} 2`,
		"container_blkio_device_usage_total":               main + `,device="/dev/sda1",major="8",minor="1",operation="Write"} 8192`,
		"container_file_descriptors":                       main + `} 3`,
		"container_sockets":                                main + `} 1`,
		"container_ulimits_soft":                           main + `,ulimit="max_open_files"} 1024`,
		"container_processes":                              main + `} 2`,
		"container_threads_max":                            main + `} 100`,
		"container_oom_events_total":                       main + `} 1`,
		"container_pressure_cpu_waiting_seconds_total":     main + `} 0.0015`,
		"container_pressure_io_stalled_seconds_total":      main + `} 0.0005`,
	} {
		assert.Contains(t, seriesLines(page, name), name+"{"+want+stamp)
	}
	assert.Equal(t, []string{
		"container_network_receive_bytes_total{" + root + `,interface="eth0"} 1` + stamp,
		"container_network_receive_bytes_total{" + sandbox + `,interface="eth0"} 10` + stamp,
	}, seriesLines(page, "container_network_receive_bytes_total"), "the network of a pod is that of its sandbox")
	assert.Equal(t, []string{
		"container_start_time_seconds{" + pod + "} 1699996400", "container_start_time_seconds{" + sandbox + "} 1699996400",
		"container_start_time_seconds{" + main + "} 1699999940",
	}, seriesLines(page, "container_start_time_seconds"), "without time stamps, and only if the start time is known")
	assert.NotContains(t, strings.Join(seriesLines(page, "container_cpu_cfs_periods_total"), "\n"), system, "no quota, no periods")
	assert.Equal(t, []string{"container_scrape_error 0"}, seriesLines(page, "container_scrape_error"))
	assert.NotContains(t, page, "machine_", "no metrics of an unknown machine")

	systemd := cadvisor(t, newFakeNode(), usage.Options{SystemdNames: true})
	assert.Contains(t, systemd, `id="/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-podu1.slice/c1"`)
	assert.Contains(t, systemd, `id="/"`)
	below := cadvisor(t, newFakeNode(), usage.Options{CgroupRoot: "edge/agent"})
	assert.Contains(t, below, `id="/edge/agent/kubepods/burstable/podu1/c1"`)
	assert.Contains(t, below, `id="/"`, "the root cgroup of the machine keeps its name")
	slices := cadvisor(t, newFakeNode(), usage.Options{CgroupRoot: "edge", SystemdNames: true})
	assert.Contains(t, slices, `id="/edge.slice/edge-kubepods.slice/edge-kubepods-burstable.slice/edge-kubepods-burstable-podu1.slice/c1"`)
	_, err := usage.Cadvisor(newFakeNode(), usage.Options{CgroupRoot: "/edge"})
	assert.ErrorContains(t, err, "Options.CgroupRoot")
}

func TestResource(t *testing.T) {
	page := resource(t, newFakeNode(), usage.Options{})
	for _, want := range []string{
		`container_cpu_usage_seconds_total{container="main",namespace="ns",pod="web"} 3.5 1700000000123`,
		`container_start_time_seconds{container="main",namespace="ns",pod="web"} 1.7000000001230001e+09`,
		`container_swap_limit_bytes{container="main",namespace="ns",pod="web"} 200 1700000000123`,
		`node_memory_working_set_bytes 650 1700000000123`,
		`pod_swap_usage_bytes{namespace="ns",pod="web"} 50 1700000000123`,
		`resource_scrape_error 0`,
	} {
		assert.Contains(t, page, want+"\n")
	}
	assert.NotContains(t, page, "unmeasured")
}

// A partly failed measurement loses only its own series. Its error is reported once.
func TestFailedSourceCostsItsSeries(t *testing.T) {
	var told []string
	o := usage.Options{Error: func(page string, err error) { told = append(told, page+": "+err.Error()) }}
	n := newFakeNode()
	n.err = errors.New("no disk")
	n.samples = n.samples[:1]
	n.summary.Node.CPU = nil
	page := cadvisor(t, n, o)
	assert.Contains(t, page, "container_scrape_error 1\n")
	assert.Len(t, seriesLines(page, "container_memory_rss"), 1)
	page = resource(t, n, o)
	assert.Contains(t, page, "resource_scrape_error 1\n")
	assert.NotContains(t, page, "node_cpu_usage_seconds_total", "no header for a family without series")
	assert.Contains(t, page, "pod_cpu_usage_seconds_total{")
	registry := prometheus.NewRegistry()
	require.NoError(t, registry.Register(usage.Storage(n.Summary, o)))
	_, err := registry.Gather()
	require.NoError(t, err)
	assert.Equal(t, []string{"/metrics/cadvisor: no disk", "/metrics/resource: no disk", "/metrics: no disk"}, told)
}

// Data of excluded metrics is not read.
func TestWithoutReadsNoExcludedData(t *testing.T) {
	n := newFakeNode()
	_ = cadvisor(t, n, usage.Options{})
	all := n.parts
	assert.Zero(t, all&(cgroups.PartHugetlb|cgroups.PartEvents|cgroups.PartPidsEvents), "no metric needs these parts")
	page := cadvisor(t, n, usage.Options{
		Without: []string{"container_pressure_*", "container_fs_*", "container_blkio_device_usage_total"}, WithoutLabels: []string{"image", "name"},
	})
	assert.Equal(t, all&^(cgroups.PartPressure|cgroups.PartIO), n.parts)
	assert.NotContains(t, page, "container_pressure_")
	assert.Contains(t, page, `container_memory_rss{container="main",id="/kubepods/burstable/podu1/c1",namespace="ns",pod="web"} 300`)
	page = resource(t, n, usage.Options{Without: []string{"*_swap_*", "resource_scrape_error"}})
	assert.NotContains(t, page, "swap")
	assert.NotContains(t, page, "scrape_error")

	for want, o := range map[string]usage.Options{
		`Options.MaxAge -1ns must not be negative`:                {MaxAge: -1},
		`Options.Without: "[": syntax error`:                      {Without: []string{"["}},
		`Options.WithoutLabels: "pod": must be image or name: se`: {WithoutLabels: []string{"pod"}},
	} {
		_, err := usage.Cadvisor(n, o)
		assert.ErrorContains(t, err, "usage.Cadvisor: "+want)
		_, err = usage.Resource(n, o)
		assert.ErrorContains(t, err, "usage.Resource: "+want)
	}
	_, err := usage.Cadvisor(nil, usage.Options{})
	require.ErrorContains(t, err, "usage.Cadvisor: argument source is nil: required, such as a *stats.Collector")
	assert.Panics(t, func() { usage.Storage(nil, usage.Options{}) })
}

// Users choose the names of pods and images. No name makes the page invalid, and duplicates are omitted.
func TestHostileNames(t *testing.T) {
	n := newFakeNode()
	evil := "a\"} 1\nfake_metric{x=\"\\\xff"
	last := n.samples[len(n.samples)-1]
	last.Container.ID, last.Leaf = "c2", "c2"
	last.Container.Image.Image, last.Container.Name, last.Pod.Name = evil, evil, evil
	last.Interfaces = []stats.Interface{{Name: evil}}
	n.samples = append(n.samples, last, last)
	n.summary.Pods = append(n.summary.Pods, n.summary.Pods[0], statsapi.PodStats{
		PodRef: statsapi.PodReference{Name: evil}, CPU: n.summary.Pods[0].CPU, Containers: []statsapi.ContainerStats{{Name: evil, CPU: n.summary.Pods[0].CPU}},
	})
	for _, page := range []string{cadvisor(t, n, usage.Options{}), resource(t, n, usage.Options{})} {
		for name := range parsePage(t, page) {
			assert.NotContains(t, name, "fake")
		}
	}
}

func TestStorage(t *testing.T) {
	registry := prometheus.NewPedanticRegistry()
	require.NoError(t, registry.Register(usage.Storage(newFakeNode().Summary, usage.Options{Without: []string{"*_inodes_used"}})))
	families, err := registry.Gather()
	require.NoError(t, err)
	got := map[string]string{}
	for _, f := range families {
		require.Len(t, f.GetMetric(), 1, f.GetName())
		labels := ""
		for _, l := range f.GetMetric()[0].GetLabel() {
			labels += " " + l.GetName() + "=" + l.GetValue()
		}
		got[f.GetName()] = fmt.Sprint(f.GetMetric()[0].GetGauge().GetValue()) + labels
	}
	assert.Equal(t, map[string]string{
		"kubelet_volume_stats_capacity_bytes":         "9 namespace=ns persistentvolumeclaim=claim",
		"kubelet_volume_stats_used_bytes":             "5 namespace=ns persistentvolumeclaim=claim",
		"kubelet_container_log_filesystem_used_bytes": "77 container=main namespace=ns pod=web uid=u1",
	}, got)
}

func TestPageOverHTTP(t *testing.T) {
	p, err := usage.Cadvisor(newFakeNode(), usage.Options{Without: []string{"container_last_seen"}, Proc: fakeProc()})
	require.NoError(t, err)
	ask := func(method, accept string) *httptest.ResponseRecorder {
		r := httptest.NewRequest(method, "/metrics/cadvisor", nil)
		r.Header.Set("Accept-Encoding", accept)
		w := httptest.NewRecorder()
		p.ServeHTTP(w, r)
		return w
	}
	plain := ask("GET", "identity, gzip;q=0").Body.String()
	for _, accept := range []string{"gzip", "br, gzip; q=0.5"} {
		w := ask("GET", accept)
		assert.Equal(t, "gzip", w.Header().Get("Content-Encoding"))
		z, err := gzip.NewReader(w.Body)
		require.NoError(t, err)
		text, err := io.ReadAll(z)
		require.NoError(t, err)
		assert.Equal(t, plain, string(text))
	}
	w := ask("POST", "")
	assert.Equal(t, 405, w.Code)
	assert.Equal(t, "GET, HEAD", w.Header().Get("Allow"))
}

// A page reuses a measurement that is at most MaxAge old, unless it had errors.
func TestMaxAgeReusesCompleteMeasurements(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newFakeNode()
		n.err = errors.New("no disk")
		p, err := usage.Resource(n, usage.Options{MaxAge: 10 * time.Second})
		require.NoError(t, err)
		rss := func() string {
			page := scrapePage(t, p)
			return strings.Join(seriesLines(page, "node_memory_working_set_bytes"), "") + " " + strings.Join(seriesLines(page, "resource_scrape_error"), "")
		}
		use := func(bytes uint64) {
			n.summary.Node.Memory = &statsapi.MemoryStats{Time: metav1.NewTime(at), WorkingSetBytes: &bytes}
		}
		use(1)
		assert.Equal(t, "node_memory_working_set_bytes 1 1700000000123 resource_scrape_error 1", rss())
		n.err = nil
		use(2)
		assert.Equal(t, "node_memory_working_set_bytes 2 1700000000123 resource_scrape_error 0", rss())
		n.err = errors.New("the source must not be called")
		time.Sleep(10*time.Second - 1)
		assert.Equal(t, "node_memory_working_set_bytes 2 1700000000123 resource_scrape_error 0", rss())
		time.Sleep(time.Nanosecond)
		assert.Equal(t, "node_memory_working_set_bytes 2 1700000000123 resource_scrape_error 1", rss())
	})
}

// slowSource is a source that returns after the test has permitted it.
type slowSource struct {
	*fakeSource
	begun, answer chan struct{}
}

func (s slowSource) CPUAndMemory(ctx context.Context) (*statsapi.Summary, error) {
	s.begun <- struct{}{}
	<-s.answer
	return s.fakeSource.CPUAndMemory(ctx)
}

// A waiting request returns when its client disconnects. A hung page does not measure twice.
func TestPageServesOneScrapeAtATime(t *testing.T) {
	s := slowSource{newFakeNode(), make(chan struct{}), make(chan struct{})}
	p, err := usage.Resource(s, usage.Options{})
	require.NoError(t, err)
	var wg sync.WaitGroup
	first := httptest.NewRecorder()
	wg.Go(func() { p.ServeHTTP(first, httptest.NewRequest(http.MethodGet, "/", nil)) })
	<-s.begun
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	second := httptest.NewRecorder()
	p.ServeHTTP(second, httptest.NewRequest(http.MethodGet, "/", nil).WithContext(ctx))
	assert.Equal(t, 503, second.Code)
	s.answer <- struct{}{}
	wg.Wait()
	assert.Equal(t, 200, first.Code)
}
