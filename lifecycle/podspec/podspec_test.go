// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package podspec_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/internal/podtest"
	"github.com/seed81659283/nodeagent/lifecycle/podspec"
	"github.com/seed81659283/nodeagent/qos"
)

func sandbox(t *testing.T, p *corev1.Pod, o podspec.Options) cri.SandboxConfig {
	t.Helper()
	c, err := podspec.Sandbox(p, 0, o)
	require.NoError(t, err)
	return c
}

func container(t *testing.T, p *corev1.Pod, l podspec.Launch, o podspec.Options) cri.ContainerConfig {
	t.Helper()
	c, err := podspec.Container(p, &p.Spec.Containers[0], l, o)
	require.NoError(t, err)
	return c
}

func TestSandboxOfMinimalPod(t *testing.T) {
	p := podtest.Pod(t)
	p.Labels = map[string]string{"app": "web", cri.LabelPodName: "other"}
	p.Annotations = map[string]string{"a": "b"}
	got, err := podspec.Sandbox(p, 3, podspec.Options{
		LogRoot: podspec.DefaultLogRoot, CgroupParent: func(p *corev1.Pod) string { return "/pods/" + string(p.UID) },
	})
	require.NoError(t, err)
	want := cri.SandboxConfig{
		Pod:          cri.PodIdentity{UID: "u1", Name: "web", Namespace: "default"},
		Attempt:      3,
		Hostname:     "web",
		LogDirectory: "/var/log/pods/default_web_u1",
		CgroupParent: "/pods/u1",
		Labels: map[string]string{
			"app": "web", cri.LabelPodName: "web", cri.LabelPodNamespace: "default", cri.LabelPodUID: "u1",
		},
		Annotations: map[string]string{"a": "b"},
		Security: cri.SandboxSecurity{
			Namespaces: cri.NamespaceOptions{PID: cri.NamespaceContainer, User: &cri.UserNamespace{Mode: cri.NamespaceNode}},
			Seccomp:    &cri.SecurityProfile{Type: cri.ProfileRuntimeDefault},
		},
		Resources: &cri.Resources{CPUPeriod: 100000, CPUShares: 2},
	}
	assert.Empty(t, cmp.Diff(want, got))
	assert.Equal(t, map[string]string{"app": "web", cri.LabelPodName: "other"}, p.Labels, "Sandbox does not modify the pod")
}

// An agent without LogRoot, such as a test, writes nothing below /var/log.
func TestEmptyLogRootDisablesLogs(t *testing.T) {
	p := podtest.Pod(t, "", "{}")
	sandbox, err := podspec.Sandbox(p, 0, podspec.Options{})
	require.NoError(t, err)
	assert.Empty(t, sandbox.LogDirectory)
	assert.Empty(t, container(t, p, podspec.Launch{Image: &cri.Image{}}, podspec.Options{}).LogPath)
}

func TestContainerOfMinimalPod(t *testing.T) {
	p := podtest.Pod(t, "", `{command: [run, $(A)], args: [$$A], env: [{name: A, value: b}], workingDir: /w, stdin: true, tty: true,
		ports: [{containerPort: 80}]}`)
	p.DeletionGracePeriodSeconds = new(int64(5))
	got := container(t, p, podspec.Launch{
		Attempt: 2, ImageRef: "sha256:1", Image: &cri.Image{},
		Annotations: map[string]string{"device": "d", podspec.AnnotationHash: "other"},
	}, podspec.Options{LogRoot: podspec.DefaultLogRoot})
	want := cri.ContainerConfig{
		Name:       "c",
		Attempt:    2,
		Image:      cri.ImageSpec{Image: "sha256:1", UserSpecifiedImage: "nginx:1"},
		Command:    []string{"run", "b"},
		Args:       []string{"$A"},
		WorkingDir: "/w",
		Env:        []cri.EnvVar{{Name: "A", Value: "b"}},
		Labels: map[string]string{
			cri.LabelPodName: "web", cri.LabelPodNamespace: "default", cri.LabelPodUID: "u1", cri.LabelContainerName: "c",
		},
		Annotations: map[string]string{
			"device":                                           "d",
			"io.kubernetes.container.hash":                     podspec.Hash(&p.Spec.Containers[0]),
			"io.kubernetes.container.restartCount":             "2",
			"io.kubernetes.container.terminationMessagePath":   "/dev/termination-log",
			"io.kubernetes.container.terminationMessagePolicy": "File",
			"io.kubernetes.container.ports":                    `[{"containerPort":80,"protocol":"TCP"}]`,
			"io.kubernetes.pod.deletionGracePeriod":            "5",
			"io.kubernetes.pod.terminationGracePeriod":         "30",
		},
		LogPath:   "c/2.log",
		Stdin:     true,
		TTY:       true,
		Resources: &cri.Resources{CPUPeriod: 100000, CPUShares: 2},
		Security: cri.ContainerSecurity{
			Namespaces: cri.NamespaceOptions{PID: cri.NamespaceContainer, User: &cri.UserNamespace{Mode: cri.NamespaceNode}},
			RunAsUser:  new(int64),
			MaskedPaths: []string{
				"/proc/asound", "/proc/acpi", "/proc/interrupts", "/proc/kcore", "/proc/keys", "/proc/latency_stats",
				"/proc/timer_list", "/proc/timer_stats", "/proc/sched_debug", "/proc/scsi", "/sys/firmware",
				"/sys/devices/virtual/powercap",
			},
			ReadonlyPaths: []string{"/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"},
			Seccomp:       &cri.SecurityProfile{Type: cri.ProfileUnconfined},
		},
	}
	assert.Empty(t, cmp.Diff(want, got))
}

func TestHashEqualsKubelets(t *testing.T) {
	c := corev1.Container{Name: "test_container", Image: "foo/image:v1"}
	assert.Equal(t, "8e45cbd0", podspec.Hash(&c))
	c.Env = []corev1.EnvVar{{Name: "A"}}
	assert.Equal(t, "8e45cbd0", podspec.Hash(&c), "only name and image change the hash")
	c.Image = "foo/image:v2"
	assert.NotEqual(t, "8e45cbd0", podspec.Hash(&c))
}

func TestHostname(t *testing.T) {
	long := "a123456789-123456789-123456789-123456789-123456789-123456789--.-345678"
	for name, c := range map[string]struct{ pod, spec, want string }{
		"pod name":           {"web", "", "web"},
		"long pod name":      {long, "", long[:60]},
		"hostname":           {"web", "hostname: h", "h"},
		"subdomain":          {"web", "{hostname: h, subdomain: s}", "h"},
		"FQDN":               {"web", "{hostname: h, subdomain: s, setHostnameAsFQDN: true}", "h.s.default.svc.cluster.local"},
		"FQDN, no subdomain": {"web", "setHostnameAsFQDN: true", "web"},
		"override":           {"web", "{hostnameOverride: a.b, subdomain: s}", "a.b"},
		"host network":       {"web", "{hostNetwork: true, hostname: h}", ""},
	} {
		t.Run(name, func(t *testing.T) {
			p := podtest.Pod(t, c.spec)
			p.Name = c.pod
			assert.Equal(t, c.want, sandbox(t, p, podspec.Options{ClusterDomain: "cluster.local"}).Hostname)
		})
	}

	p := podtest.Pod(t, "{subdomain: s, setHostnameAsFQDN: true}")
	p.Name = "a234567890123456789012345678901234567" // 37 + 28 = 65 characters with namespace and domain
	_, err := podspec.Sandbox(p, 0, podspec.Options{ClusterDomain: "cluster.local"})
	assert.EqualError(t, err, "failed to construct FQDN from pod hostname and cluster domain, FQDN "+p.Name+
		".s.default.svc.cluster.local is too long (64 characters is the max, 65 characters requested)")
	p.Name = p.Name[1:]
	_, err = podspec.Sandbox(p, 0, podspec.Options{ClusterDomain: "cluster.local"})
	assert.NoError(t, err)
}

func TestSandboxPortMappings(t *testing.T) {
	p := podtest.Pod(t, "", `ports:
- {containerPort: 80, hostPort: 8080}
- {containerPort: 80, hostPort: 8080}
- {containerPort: 80, hostPort: 8080, hostIP: 127.0.0.1}
- {containerPort: 80, hostPort: 8080, hostIP: "::1"}
- {containerPort: 53, protocol: UDP, name: dns}
- {containerPort: 54, protocol: SCTP, name: dns}
- {containerPort: 55, protocol: SCTP}`)
	var warned []string
	got := sandbox(t, p, podspec.Options{Warn: func(_ *corev1.Pod, reason, message string) { warned = append(warned, reason+": "+message) }})
	assert.Equal(t, []cri.PortMapping{
		{ContainerPort: 80, HostPort: 8080},
		{ContainerPort: 80, HostPort: 8080, HostIP: "127.0.0.1"},
		{ContainerPort: 80, HostPort: 8080, HostIP: "::1"},
		{ContainerPort: 53, Protocol: cri.UDP},
		{ContainerPort: 55, Protocol: cri.SCTP},
	}, got.Ports)
	assert.Contains(t, warned, `DuplicatePort: container "c" has port "any-TCP-:80:8080" more than once`)
}

func TestNamespacesAndSysctls(t *testing.T) {
	p := podtest.Pod(t, `{hostNetwork: true, hostIPC: true, shareProcessNamespace: true, securityContext: {sysctls: [
		{name: net/ipv4/conf/eno2.100/rp_filter, value: "1"}, {name: kernel.shm_rmid_forced, value: "0"}]}}`)
	c := sandbox(t, p, podspec.Options{})
	want := cri.NamespaceOptions{
		Network: cri.NamespaceNode, IPC: cri.NamespaceNode, PID: cri.NamespacePod,
		User: &cri.UserNamespace{Mode: cri.NamespaceNode},
	}
	assert.Equal(t, want, c.Security.Namespaces)
	assert.Equal(t, want, container(t, p, podspec.Launch{}, podspec.Options{}).Security.Namespaces)
	assert.Equal(t, map[string]string{"net.ipv4.conf.eno2/100.rp_filter": "1", "kernel.shm_rmid_forced": "0"}, c.Sysctls)
	assert.Equal(t, cri.NamespaceNode, sandbox(t, podtest.Pod(t, "hostPID: true"), podspec.Options{}).Security.Namespaces.PID)
}

func TestRuntimeClass(t *testing.T) {
	p := podtest.Pod(t, "runtimeClassName: gvisor")
	o := podspec.Options{RuntimeClasses: func(class string) (string, bool) { return "runsc", class == "gvisor" }}
	assert.Equal(t, "runsc", sandbox(t, p, o).RuntimeHandler)
	_, err := podspec.Sandbox(p, 0, podspec.Options{})
	assert.EqualError(t, err, `spec.runtimeClassName: Not found: "gvisor"`)
	_, err = podspec.Sandbox(podtest.Pod(t, "runtimeClassName: kata"), 0, o)
	assert.EqualError(t, err, `spec.runtimeClassName: Not found: "kata"`)
}

// The cpuset of a container is that of its launch, not of its pod.
func TestContainerHasCPUsAndMemoryNodes(t *testing.T) {
	got := container(t, podtest.Pod(t), podspec.Launch{CPUs: "0-3,7", MemoryNodes: "0,2"}, podspec.Options{}).Resources
	assert.Equal(t, &cri.Resources{CPUPeriod: 100000, CPUShares: 2, CpusetCPUs: "0-3,7", CpusetMems: "0,2"}, got)
}

func TestResources(t *testing.T) {
	const mib = 1 << 20
	for name, c := range map[string]struct {
		spec, container string
		options         podspec.Options
		want            cri.Resources
	}{
		"none":          {want: cri.Resources{CPUShares: 2, CPUPeriod: 100000}},
		"one millicore": {container: "requests: {cpu: 1m}", want: cri.Resources{CPUShares: 2, CPUPeriod: 100000}},
		"request":       {container: "requests: {cpu: 250m}", want: cri.Resources{CPUShares: 256, CPUPeriod: 100000}},
		"limit":         {container: "limits: {cpu: 500m, memory: 1Mi}", want: cri.Resources{CPUShares: 512, CPUQuota: 50000, CPUPeriod: 100000, MemoryLimit: mib}},
		"least quota":   {container: "limits: {cpu: 5m}", want: cri.Resources{CPUShares: 5, CPUQuota: 1000, CPUPeriod: 100000}},
		"most shares":   {container: "requests: {cpu: 1000}", want: cri.Resources{CPUShares: 262144, CPUPeriod: 100000}},
		"no quota": {
			container: "limits: {cpu: 1}", options: podspec.Options{Node: &qos.Node{
				MemoryCapacity: mib, CgroupV1: true, NoSwapController: true, NoCPUQuota: true,
			}},
			want: cri.Resources{CPUShares: 1024, OOMScoreAdj: 999},
		},
		"limit of pod": {spec: "resources: {limits: {cpu: 2, memory: 2Mi}}", want: cri.Resources{CPUShares: 2048, CPUQuota: 200000, CPUPeriod: 100000, MemoryLimit: 2 * mib}},
		"request, limit of pod": {
			spec: "resources: {limits: {cpu: 2}}", container: "requests: {cpu: 1}",
			want: cri.Resources{CPUShares: 1024, CPUQuota: 200000, CPUPeriod: 100000},
		},
		"huge pages": {
			container: "limits: {hugepages-2Mi: 4Mi}", options: podspec.Options{Node: &qos.Node{
				MemoryCapacity: mib, CgroupV1: true, NoSwapController: true, HugepageSizes: []string{"2MB", "1GB"},
			}},
			want: cri.Resources{CPUShares: 2, CPUPeriod: 100000, OOMScoreAdj: 1000, HugepageLimits: []cri.HugepageLimit{{PageSize: "1GB"}, {PageSize: "2MB", Limit: 4 * mib}}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := podtest.Pod(t, c.spec, "resources: {"+c.container+"}")
			assert.Empty(t, cmp.Diff(c.want, *container(t, p, podspec.Launch{}, c.options).Resources))
		})
	}
}

// If Options.Node is set, the OOM score adjustment, swap and memory QoS follow from it. See package qos.
func TestResourcesWithNode(t *testing.T) {
	p := podtest.Pod(t, "", "resources: {requests: {memory: 1Gi}, limits: {memory: 2Gi}}")
	r := container(t, p, podspec.Launch{}, podspec.Options{Node: &qos.Node{MemoryCapacity: 4 << 30, Reservation: qos.TieredReservation}}).Resources
	assert.EqualValues(t, 750, r.OOMScoreAdj)
	assert.Equal(t, map[string]string{
		"memory.low": "1073741824", "memory.oom.group": "1", "memory.swap.max": "0",
	}, r.Unified)

	_, err := podspec.Container(p, &p.Spec.Containers[0], podspec.Launch{}, podspec.Options{Node: &qos.Node{}})
	assert.ErrorContains(t, err, "memory capacity is 0 bytes")
}

func TestSandboxResources(t *testing.T) {
	p := podtest.Pod(t, "overhead: {cpu: 100m, memory: 1Mi}", "resources: {limits: {cpu: 1, memory: 64Mi}}")
	p.Spec.Containers = append(p.Spec.Containers, p.Spec.Containers[0], corev1.Container{Name: "unlimited"})
	c := sandbox(t, p, podspec.Options{})
	assert.Equal(t, &cri.Resources{CPUShares: 2048, CPUQuota: 200000, CPUPeriod: 100000, MemoryLimit: 128 << 20}, c.Resources)
	assert.Equal(t, &cri.Resources{CPUShares: 102, CPUQuota: 10000, CPUPeriod: 100000, MemoryLimit: 1 << 20}, c.Overhead)
	p.Spec.Resources = &corev1.ResourceRequirements{Limits: corev1.ResourceList{corev1.ResourceMemory: quantity("1Gi")}}
	assert.EqualValues(t, 1<<30, sandbox(t, p, podspec.Options{}).Resources.MemoryLimit)
}
