// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package conformance_test

import (
	"context"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/cadvisor/lib/container"
	"github.com/google/cadvisor/lib/container/common"
	"github.com/google/cadvisor/lib/container/libcontainer"
	"github.com/google/cadvisor/lib/metrics"
	info "github.com/google/cadvisor/lib/model"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"k8s.io/utils/clock"

	"github.com/seed81659283/nodeagent/cgroups"
	"github.com/seed81659283/nodeagent/cgroups/driver"
	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/cri/critest"
	"github.com/seed81659283/nodeagent/nodeapi/prom/usage"
	"github.com/seed81659283/nodeagent/stats"
)

// included are the metrics that cAdvisor measures in the kubelet.
var included = container.MetricSet{
	container.CpuUsageMetrics: {}, container.MemoryUsageMetrics: {}, container.DiskIOMetrics: {}, container.DiskUsageMetrics: {},
	container.NetworkUsageMetrics: {}, container.AppMetrics: {}, container.ProcessMetrics: {}, container.OOMMetrics: {}, container.PressureMetrics: {},
}

// usageNode is a node on this machine. Its pods have cgroups below one that is removed at the end.
type usageNode struct {
	testing.TB
	driver *driver.Driver
	root   cgroups.Path
	rt     *critest.Runtime
	// Containers of cAdvisor by cgroup path.
	containers map[string]*info.ContainerInfo
	handlers   map[string]*libcontainer.Handler
}

func newUsageNode(t testing.TB) *usageNode {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("needs root")
	}
	d, err := driver.Open(context.Background(), driver.Options{OptionalControllers: []string{"cpu", "pids"}})
	if err != nil {
		t.Skip("cannot use cgroups: ", err)
	}
	t.Cleanup(func() { _ = d.Close() })
	if !d.Host().HasController("memory") || !d.Host().HasController("pids") || !d.Host().HasController("cpu") {
		t.Skip("needs the controllers cpu, memory and pids")
	}
	host(d.Host().Mode == driver.V2)
	n := &usageNode{
		TB: t, driver: d, root: cgroups.Path(fmt.Sprintf("nodeagent-test-usage-%d", os.Getpid())), rt: critest.New(critest.Options{}),
		containers: make(map[string]*info.ContainerInfo), handlers: make(map[string]*libcontainer.Handler),
	}
	if err := d.Apply(context.Background(), n.root, cgroups.Resources{}); err != nil {
		t.Skip("cannot create a cgroup: ", err)
	}
	t.Cleanup(func() { usageOK(t, d.Remove(context.Background(), n.root)) })
	return n
}

func usageOK(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// pod creates a pod with the cgroups of a sandbox and a container.
func (n *usageNode) pod(name string) (sandbox, main cgroups.Path) {
	n.Helper()
	ctx := context.Background()
	config := &cri.SandboxConfig{Pod: cri.PodIdentity{UID: "uid" + name, Name: name, Namespace: "ns"}}
	s, err := n.rt.RunSandbox(ctx, config)
	usageOK(n, err)
	c, err := n.rt.CreateContainer(ctx, s, &cri.ContainerConfig{Name: "main", Image: cri.ImageSpec{Image: "i"}}, config)
	usageOK(n, err)
	usageOK(n, n.rt.StartContainer(ctx, c))
	pod := cgroups.PodPath(n.root, cgroups.Burstable, "uid"+name)
	sandbox, main = pod.Join(s), pod.Join(c)
	usageOK(n, n.driver.Apply(ctx, sandbox, cgroups.Resources{}))
	usageOK(n, n.driver.Apply(ctx, main, cgroups.Resources{MemoryMax: new(int64(256 << 20)), PidsMax: new(int64(50))}))
	labels := map[string]string{"io.kubernetes.pod.name": name, "io.kubernetes.pod.namespace": "ns"}
	n.watch(pod, nil, "", "")
	n.watch(sandbox, labels, "", s)
	labels = map[string]string{"io.kubernetes.pod.name": name, "io.kubernetes.pod.namespace": "ns", "io.kubernetes.container.name": "main"}
	n.watch(main, labels, "i", c)
	return sandbox, main
}

// dirs returns the directories of a cgroup by controller, as in cAdvisor.
func (n *usageNode) dirs(p cgroups.Path) map[string]string {
	dirs := make(map[string]string)
	for controller, dir := range n.driver.Host().Dirs {
		if dir != "" {
			dirs[controller] = filepath.Join(dir, string(p))
		}
	}
	if n.driver.Host().Mode == driver.V2 {
		return map[string]string{"": dirs["memory"]}
	}
	return dirs
}

// watch adds a cgroup to cAdvisor's containers.
func (n *usageNode) watch(p cgroups.Path, labels map[string]string, image, alias string) {
	n.Helper()
	paths := n.dirs(p)
	manager, err := libcontainer.NewCgroupManager(p.Cgroupfs(), paths)
	usageOK(n, err)
	spec, err := common.GetSpec(paths, n, false, false)
	usageOK(n, err)
	spec.Labels, spec.Image = labels, image
	c := &info.ContainerInfo{ContainerReference: info.ContainerReference{Name: p.Cgroupfs()}, Spec: spec}
	if alias != "" {
		c.Aliases = []string{alias}
	}
	n.containers[c.Name], n.handlers[c.Name] = c, libcontainer.NewHandler(manager, "/", 0, included)
}

// readSpecs makes cAdvisor read the limits of every cgroup once. It does this for a page if they are older than 5 s
// (manager/container.go, GetInfo). Our page includes the limits.
func (n *usageNode) readSpecs() {
	n.Helper()
	for name := range n.containers {
		_, err := common.GetSpec(n.dirs(cgroups.Path(strings.TrimPrefix(name, "/"))), n, false, false)
		usageOK(n, err)
	}
}

// measureAll makes cAdvisor measure every cgroup once.
func (n *usageNode) measureAll() {
	n.Helper()
	for name, h := range n.handlers {
		s, err := h.GetStats()
		usageOK(n, err)
		n.containers[name].Stats = []*info.ContainerStats{s}
	}
}

// Methods that cAdvisor's Prometheus collector calls.

func (n *usageNode) GetRequestedContainersInfo(string, info.RequestOptions) (map[string]*info.ContainerInfo, error) {
	return n.containers, nil
}

func (n *usageNode) GetVersionInfo() (*info.VersionInfo, error) { return &info.VersionInfo{}, nil }

func (n *usageNode) GetMachineInfo() (*info.MachineInfo, error) {
	return &info.MachineInfo{NumCores: 2, MemoryCapacity: 8 << 30, SwapCapacity: 1 << 30}, nil
}

// kubelet returns the kubelet's handler of the page (pkg/kubelet/server/server.go).
func (n *usageNode) kubelet() http.Handler {
	labels := func(c *info.ContainerInfo) map[string]string {
		set := map[string]string{
			metrics.LabelID: c.Name, metrics.LabelName: "", metrics.LabelImage: c.Spec.Image, "pod": c.Spec.Labels["io.kubernetes.pod.name"],
			"namespace": c.Spec.Labels["io.kubernetes.pod.namespace"], "container": c.Spec.Labels["io.kubernetes.container.name"],
		}
		if len(c.Aliases) > 0 {
			set[metrics.LabelName] = c.Aliases[0]
		}
		if uid, ok := strings.CutPrefix(filepath.Base(c.Name), "poduid"); ok {
			set["pod"], set["namespace"] = uid, "ns"
		}
		return set
	}
	registry := prometheus.NewRegistry()
	registry.MustRegister(metrics.NewPrometheusCollector(n, labels, included, clock.RealClock{}, info.RequestOptions{}))
	return promhttp.HandlerFor(registry, promhttp.HandlerOpts{ErrorHandling: promhttp.ContinueOnError})
}

// collector returns a Collector for the node.
func (n *usageNode) collector() *stats.Collector {
	n.Helper()
	dir := n.TempDir()
	c, err := stats.New(n.driver, n.rt, stats.Options{
		CgroupRoot: n.root, Root: dir, LogRoot: n.TempDir(),
		Statfs: func(string) (stats.Filesystem, error) { // the filesystem of the test runtime does not exist
			var s syscall.Statfs_t
			err := syscall.Statfs(dir, &s)
			return stats.Filesystem{CapacityBytes: s.Blocks * uint64(s.Bsize), AvailableBytes: s.Bavail * uint64(s.Bsize)}, err
		},
	})
	usageOK(n, err)
	return c
}

// ours returns our handler of the page, with measurements that are at most age old.
func (n *usageNode) ours(age time.Duration) http.Handler {
	n.Helper()
	page, err := usage.Cadvisor(n.collector(), usage.Options{MaxAge: age})
	usageOK(n, err)
	return page
}

// scrapePage returns the page.
func scrapePage(t testing.TB, h http.Handler) string {
	t.Helper()
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics/cadvisor", nil))
	if w.Code != http.StatusOK {
		t.Fatal(w.Code, w.Body.String())
	}
	text, err := io.ReadAll(w.Body)
	usageOK(t, err)
	return string(text)
}

// pageSeries returns the values of all series on a page, by name and labels.
func pageSeries(t testing.TB, page string) map[string]float64 {
	t.Helper()
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(strings.NewReader(page))
	usageOK(t, err)
	all := make(map[string]float64)
	for name, f := range families {
		for _, m := range f.GetMetric() {
			labels := m.GetLabel()
			slices.SortFunc(labels, func(a, b *dto.LabelPair) int { return strings.Compare(a.GetName(), b.GetName()) })
			key := name + "{"
			for _, l := range labels {
				key += l.GetName() + "=" + l.GetValue() + ","
			}
			all[key] = m.GetCounter().GetValue() + m.GetGauge().GetValue()
		}
	}
	return all
}

// usageAbsent are prefixes of families that our page does not have by the documentation of package usage, or that differ
// from cAdvisor's.
var usageAbsent = []string{
	"container_file_descriptors", "container_sockets", "container_ulimits_soft", "container_health_state", "container_fs_", "container_blkio_",
	"container_spec_cpu_", "container_spec_memory_reservation_limit_bytes", "cadvisor_version_info", "container_scrape_error",
	"container_spec_memory_swap_limit_bytes",                          // the value of v1 includes memory
	"container_cpu_cfs_",                                              // the containers have no quotas
	"container_memory_kernel_usage",                                   // only in v1
	"container_oom_events_total",                                      // counted by the kubelet
	"container_creation_time_seconds", "container_start_time_seconds", // time of the cgroup directory
	"container_last_seen",
	"container_memory_file_dirty_bytes", "container_memory_file_writeback_bytes", "container_memory_workingset_refault_", // only of v2 in cAdvisor
}

// The values of the same containers agree within 5 %. Their processes are stopped during both measurements.
func TestUsageValues(t *testing.T) {
	n := newUsageNode(t)
	sandbox, main := n.pod("web")
	n.spawn(sandbox, "sleep", "1000")
	busy := n.spawn(main, "sh", "-c", "head -c 60000000 /dev/zero | tail | sha256sum; x=$(head -c 20000000 /dev/zero | tr '\\0' x); i=0; while :; do i=$((i+1)); done")
	for range 60 { // until the loop runs, which takes longer on a busy machine
		time.Sleep(2 * time.Second)
		sample, err := n.driver.Sample(t.Context(), main, "", cgroups.PartCPU)
		usageOK(t, err)
		if sample.CPU.Usage > uint64(time.Second) {
			break
		}
	}
	usageOK(t, syscall.Kill(-busy, syscall.SIGSTOP))
	time.Sleep(200 * time.Millisecond)

	n.measureAll()
	theirs := pageSeries(t, scrapePage(t, n.kubelet()))
	ours := pageSeries(t, scrapePage(t, n.ours(0)))
	compared, positive := 0, 0
	for key, want := range theirs {
		if slices.ContainsFunc(usageAbsent, func(prefix string) bool { return strings.HasPrefix(key, prefix) }) {
			continue
		}
		got, ok := ours[key]
		// v1 counts memory in batches per CPU.
		slack := 0.0
		if strings.HasSuffix(key[:strings.IndexByte(key, '{')], "_bytes") || strings.HasPrefix(key, "container_memory_") {
			slack = 512 << 10
		}
		// v1 divides CPU time into user and system with a resolution of 10 ms.
		if strings.HasPrefix(key, "container_cpu_") {
			slack = 0.03
		}
		switch {
		case !ok && want == 0 && strings.HasPrefix(key, "container_pressure_"): // v1 has no PSI, and cAdvisor reports zeros
		case !ok:
			t.Errorf("%s: the kubelet has %v, ours is missing", key, want)
		case math.Abs(got-want) > max(0.05*want, slack):
			t.Errorf("%s: the kubelet has %v, ours %v", key, want, got)
		}
		compared++
		if want > 0 && ok {
			positive++
		}
	}
	t.Logf("%d series compared, %d of them not zero", compared, positive)
	if positive < 15 {
		t.Errorf("only %d series are not zero", positive)
	}
	if used := ours[`container_cpu_usage_seconds_total{container=main,cpu=total,id=/`+string(main)+`,image=i,name=`+main.Base()+`,namespace=ns,pod=web,`]; used < 0.05 {
		t.Errorf("the container has used only %v s of CPU", used)
	}
}

// spawn starts a process group in a cgroup, and returns its ID.
func (n *usageNode) spawn(p cgroups.Path, name string, args ...string) int {
	n.Helper()
	cmd := exec.Command(name, args...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	usageOK(n, cmd.Start())
	n.Cleanup(func() {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
		_ = cmd.Wait()
	})
	dirs := n.dirs(p)
	seen := make(map[string]bool)
	for _, dir := range dirs {
		if !seen[dir] {
			seen[dir] = true
			usageOK(n, os.WriteFile(filepath.Join(dir, "cgroup.procs"), []byte(strconv.Itoa(cmd.Process.Pid)), 0))
		}
	}
	return cmd.Process.Pid
}

// Our page of 100 pods takes at most a quarter of the CPU time of the kubelet's, if neither includes measurements. With
// measurements it takes at most a quarter of the kubelet's page with one housekeeping of cAdvisor, which runs every 10 to 15
// seconds even without requests. The same holds for a summary and the housekeeping alone. The smaller the page, the larger
// the share of system calls.
func TestUsageSpeed(t *testing.T) {
	if !*speed {
		t.Skip("without -speed")
	}
	n := newUsageNode(t)
	for i := range 100 {
		n.pod(fmt.Sprint(i))
	}
	kubelet, ours, before, c := n.kubelet(), n.ours(0), n.ours(time.Hour), n.collector()
	summarize := func() {
		s, err := c.Summary(context.Background())
		usageOK(t, err)
		if len(s.Pods) != 100 {
			t.Fatalf("the summary has %d pods, want 100", len(s.Pods))
		}
	}
	n.measureAll()
	_, _ = scrapePage(t, ours), scrapePage(t, before)
	summarize()
	house, specs := cpuOf(t, n.measureAll), cpuOf(t, n.readSpecs)
	k := cpuOf(t, func() { _ = scrapePage(t, kubelet) })
	o := cpuOf(t, func() { _ = scrapePage(t, ours) })
	b := cpuOf(t, func() { _ = scrapePage(t, before) })
	s := cpuOf(t, summarize)
	all := k + house + specs
	t.Logf("100 pods, %d cgroups: the kubelet's page %v, housekeeping %v and limits %v; our page %v (%.2f), with measurements %v (%.2f), summary %v (%.2f)",
		len(n.containers), k, house, specs, b, float64(b)/float64(k), o, float64(o)/float64(all), s, float64(s)/float64(house))
	if 4*b > k {
		t.Errorf("our page takes %v of CPU time, more than a quarter of the kubelet's %v", b, k)
	}
	if 4*o > all {
		t.Errorf("our page with measurements takes %v of CPU time, more than a quarter of the kubelet's page, housekeeping and limits: %v", o, all)
	}
	if 4*s > house {
		t.Errorf("a summary takes %v of CPU time, more than a quarter of the housekeeping: %v", s, house)
	}
}

// cpuOf returns the CPU time of this process during f, the minimum of several runs.
func cpuOf(t testing.TB, f func()) time.Duration {
	t.Helper()
	spent := func() time.Duration {
		var u syscall.Rusage
		usageOK(t, syscall.Getrusage(syscall.RUSAGE_SELF, &u))
		return time.Duration(u.Utime.Nano() + u.Stime.Nano())
	}
	least := time.Duration(math.MaxInt64)
	for range 7 {
		const runs = 5
		begin := spent()
		for range runs {
			f()
		}
		least = min(least, (spent()-begin)/runs)
	}
	return least
}
