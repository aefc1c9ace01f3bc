// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package kubeletconfig_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/seed81659283/nodeagent/agent/kubeletconfig"
	"github.com/seed81659283/nodeagent/cgroups/podtree"
	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/internal/hostsettings"
)

// loadText loads a file with this KubeletConfiguration, and returns the documents with their defaults.
func loadText(t *testing.T, kubelet string, change func(n *kubeletconfig.NodeConfiguration)) kubeletconfig.Documents {
	t.Helper()
	path := filepath.Join(t.TempDir(), "config.yaml")
	require.NoError(t, os.WriteFile(path, []byte(header+kubelet), 0o600))
	d, err := kubeletconfig.Load(path)
	require.NoError(t, err)
	d.Node.Kubeconfig = "/kubeconfig"
	change(&d.Node)
	require.NoError(t, d.SetDefaults())
	require.NoError(t, d.Validate())
	return d
}

// The defaults are those of the kubelet, except for what an agent must not do unless it is in the place of one.
func TestHostSettingsFollowFieldsAndProcess(t *testing.T) {
	const endpoint = "containerRuntimeEndpoint: unix:///c\n"
	inPlace := func(n *kubeletconfig.NodeConfiguration) { n.HostSettings = true }
	beside := func(*kubeletconfig.NodeConfiguration) {}
	score := new(int32(-999))
	for _, c := range []struct {
		name, text string
		change     func(n *kubeletconfig.NodeConfiguration)
		own        bool
		want       hostsettings.Settings
		chains     bool
	}{
		{"in the place of a kubelet", endpoint, inPlace, true, hostsettings.Settings{FailSwapOn: true, ChangeParameters: true, OOMScoreAdj: score, MaxOpenFiles: 1_000_000}, true},
		{"a program of its own", endpoint, beside, true, hostsettings.Settings{FailSwapOn: true, OOMScoreAdj: score, MaxOpenFiles: 1_000_000}, false},
		{"a part of a program", endpoint, inPlace, false, hostsettings.Settings{FailSwapOn: true}, true},
		{"plain processes", "kubeletCgroups: /c\n", beside, true, hostsettings.Settings{}, false},
		{
			"all fields", endpoint + "failSwapOn: false\nfailCgroupV1: true\nprotectKernelDefaults: true\noomScoreAdj: 5\nmaxOpenFiles: 9\nmakeIPTablesUtilChains: true\nkubeletCgroups: /c\n", beside, true,
			hostsettings.Settings{FailCgroupV1: true, CheckParameters: true, OOMScoreAdj: new(int32(5)), MaxOpenFiles: 9, Cgroup: "/c"},
			true,
		},
		{"no chains", endpoint + "makeIPTablesUtilChains: false", inPlace, false, hostsettings.Settings{FailSwapOn: true}, false},
	} {
		d := loadText(t, c.text, c.change)
		assert.Equal(t, c.want, d.HostSettings(c.own), c.name)
		assert.Equal(t, c.chains, *d.Kubelet.MakeIPTablesUtilChains, c.name)
	}
}

// A machine that a field refuses is an error with the file, the field and the value.
func TestCheckHostNamesFileAndField(t *testing.T) {
	proc := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(proc, "swaps"), []byte("Filename Type\n/swap\tfile\n"), 0o600))
	require.NoError(t, os.Mkdir(filepath.Join(proc, "self"), 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(proc, "self/mountinfo"), []byte("1 1 0:1 / /sys/fs/cgroup rw - tmpfs tmpfs rw\n"), 0o600))
	d := loadText(t, "containerRuntimeEndpoint: unix:///c\nfailCgroupV1: true\n", func(*kubeletconfig.NodeConfiguration) {})
	err := d.CheckHost(proc)
	require.ErrorContains(t, err, `config.yaml: failCgroupV1: true, but the host has cgroup v1`)
	require.ErrorContains(t, err, `config.yaml: failSwapOn: true, but the machine has swap: "/swap"`)
	permissive := loadText(t, "failSwapOn: false\nfailCgroupV1: false\n", func(*kubeletconfig.NodeConfiguration) {})
	require.NoError(t, permissive.CheckHost(proc))
	require.NoError(t, permissive.PrepareHost(false, nil), "this machine")
}

func TestLimitsOfPodsFollowFields(t *testing.T) {
	c := parse(t, "podPidsLimit: 1000\nmemoryThrottlingFactor: 0.8\nkubeReserved: {memory: 1Gi}\n")
	require.NoError(t, c.Validate())
	var o podtree.Options
	c.LimitPods(&o, corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("3Gi")})
	assert.Equal(t, int64(1000), o.Node.PodPidsLimit)
	assert.Equal(t, 0.8, *o.Node.ThrottlingFactor)
	assert.Equal(t, int64(3<<30), o.Node.MemoryAllocatable)
	assert.Equal(t, "1Gi", o.Reserved.Kube.Memory().String())

	c = parse(t, "podPidsLimit: -7")
	c.LimitPods(&o, nil)
	assert.Equal(t, int64(-1), o.Node.PodPidsLimit, "no limit")
	assert.Nil(t, o.Node.ThrottlingFactor, "memory.high is not set by default")
	for _, text := range []string{"0", "-0.1", "1.1"} {
		c := parse(t, "memoryThrottlingFactor: "+text)
		assert.ErrorContains(t, c.Validate(), "memoryThrottlingFactor: "+text+" must be greater than 0 and at most 1")
	}
}

func TestVolumePeriodFollowsField(t *testing.T) {
	for text, want := range map[string]time.Duration{
		"":                              10 * time.Second, // with the default thresholds
		"volumeStatsAggPeriod: 0s":      10 * time.Second,
		"volumeStatsAggPeriod: 5m":      5 * time.Minute,
		"volumeStatsAggPeriod: 2s":      2 * time.Second,
		"volumeStatsAggPeriod: -1s":     -1,
		"evictionHard: {}\nmaxPods: 10": time.Minute,
	} {
		c := parse(t, text)
		period, measured := c.VolumePeriod()
		assert.Equal(t, want > 0, measured, text)
		assert.Equal(t, max(want, 0), period, text)
	}
}

// cidrRuntime records the pod CIDRs.
type cidrRuntime struct {
	cri.Runtime
	calls [][]netip.Prefix
	err   error
}

func (r *cidrRuntime) SetPodCIDRs(_ context.Context, cidrs []netip.Prefix) error {
	r.calls = append(r.calls, cidrs)
	return r.err
}

func TestPodCIDRIsPassedToTheRuntime(t *testing.T) {
	var log bytes.Buffer
	logger := slog.New(slog.NewTextHandler(&log, nil))
	runtime := &cidrRuntime{}
	for _, text := range []string{"podCIDR: 10.1.0.0/24", "podCIDR: \"10.1.0.0/24,fd00::/64\"", "", "podCIDR: 10.1.0.0"} {
		c := parse(t, text)
		c.SetPodCIDR(t.Context(), runtime, logger)
		c.SetPodCIDR(t.Context(), struct{ cri.Runtime }{}, logger)
	}
	v4, v6 := netip.MustParsePrefix("10.1.0.0/24"), netip.MustParsePrefix("fd00::/64")
	assert.Equal(t, [][]netip.Prefix{{v4}, {v4, v6}}, runtime.calls)
	assert.Contains(t, log.String(), "podCIDR=10.1.0.0 ")
	log.Reset()
	runtime.err = errors.New("no network")
	c := parse(t, "podCIDR: 10.1.0.0/24")
	c.SetPodCIDR(t.Context(), runtime, logger)
	assert.Contains(t, log.String(), "no network")
}

// A file with values that are not supported is read for its other fields.
func TestLoadReturnsSupportedFieldsBesideUnsupportedValues(t *testing.T) {
	path := filepath.Join(t.TempDir(), "config.yaml")
	require.NoError(t, os.WriteFile(path, []byte(header+"memoryReservationPolicy: Static\nseccompDefault: true\nstaticPodPath: /m\n"), 0o600))
	d, err := kubeletconfig.Load(path)
	require.ErrorContains(t, err, path+`: memoryReservationPolicy: "Static" is not supported by this version`)
	require.ErrorContains(t, err, path+`: seccompDefault: true is not supported by this version`)
	assert.Equal(t, "/m", d.Kubelet.StaticPodPath)
}
