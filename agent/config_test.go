// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package agent_test

import (
	"context"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/agent"
	"github.com/seed81659283/nodeagent/agent/kubeletconfig"
	"github.com/seed81659283/nodeagent/cri/critest"
	"github.com/seed81659283/nodeagent/eviction"
	"github.com/seed81659283/nodeagent/lifecycle/source"
	"github.com/seed81659283/nodeagent/nodestatus"
	"github.com/seed81659283/nodeagent/volume"
)

// New refuses settings that need another setting, and names both. It creates no files.
func TestNewNamesMissingSetting(t *testing.T) {
	runtime := critest.New(critest.Options{})
	sources := []source.Source{source.Pods("code", make(chan []*corev1.Pod))}
	for want, set := range map[string]func(c *agent.Config, o *agent.Options){
		"there would be no pods to run":                                 func(_ *agent.Config, o *agent.Options) { o.Sources = nil },
		"Options.Runtime and containerRuntimeEndpoint are both set":     func(c *agent.Config, o *agent.Options) { c.Kubelet.ContainerRuntimeEndpoint, o.Runtime = "/x", runtime },
		"Options.Ephemeral needs Options.Runtime":                       func(_ *agent.Config, o *agent.Options) { o.Ephemeral = true },
		"Options.Sources[0] is nil":                                     func(_ *agent.Config, o *agent.Options) { o.Sources = []source.Source{nil} },
		`source 1: the name "code" is empty, or that of another source`: func(_ *agent.Config, o *agent.Options) { o.Sources = append(sources, sources...) },
		`source 1: the name "file" is empty, or that of another source`: func(c *agent.Config, o *agent.Options) {
			c.Kubelet.StaticPodPath, o.Sources = "/m", []source.Source{source.Pods("file", nil)}
		},
		"Options.Hosts needs kubeconfig": func(_ *agent.Config, o *agent.Options) { o.Hosts = nodestatus.Fixed{} },
		"Options.Plugins needs":          func(_ *agent.Config, o *agent.Options) { o.Plugins = map[string]volume.Plugin{volume.EmptyDir: nil} },
		"Options.Ranker needs cgroupsPerQOS": func(_ *agent.Config, o *agent.Options) {
			o.Ranker = func(eviction.Layout) eviction.EvictionRanker { return nil }
		},
		"enableServer needs a rootDir": func(c *agent.Config, o *agent.Options) {
			o.Ephemeral, o.Runtime, c.Kubelet.EnableServer = true, runtime, new(true)
		},
		"objectsDir and kubeconfig are both set":         func(c *agent.Config, _ *agent.Options) { c.Node.ObjectsDir, c.Node.Kubeconfig = "/o", "/k" },
		"manifestSocket needs staticPodPath":             func(c *agent.Config, _ *agent.Options) { c.Node.ManifestSocket = "/s" },
		"keepObjects needs kubeconfig":                   func(c *agent.Config, _ *agent.Options) { c.Node.KeepObjects = true },
		"rotateCertificates needs kubeconfig":            func(c *agent.Config, _ *agent.Options) { c.Kubelet.RotateCertificates = true },
		"bootstrapKubeconfig needs kubeconfig":           func(c *agent.Config, _ *agent.Options) { c.Node.BootstrapKubeconfig = "/b" },
		"serverTLSBootstrap needs kubeconfig":            func(c *agent.Config, _ *agent.Options) { c.Kubelet.ServerTLSBootstrap = true },
		"Options.Runtime and cgroupsPerQOS are both set": func(c *agent.Config, o *agent.Options) { c.Kubelet.CgroupsPerQOS, o.Runtime = new(true), runtime },
		"cpuManagerPolicy static needs containerRuntimeEndpoint, or cgroupsPerQOS and an agent of root: a plain process has a cpuset only in a cgroup": func(c *agent.Config, _ *agent.Options) {
			c.Kubelet.CPUManagerPolicy = "static"
		},
		"memoryManagerPolicy Static needs containerRuntimeEndpoint, or cgroupsPerQOS": func(c *agent.Config, _ *agent.Options) {
			c.Kubelet.MemoryManagerPolicy = "Static"
		},
		"evictionHard and evictionSoft need cgroupsPerQOS": func(c *agent.Config, _ *agent.Options) {
			c.Kubelet.EvictionHard = map[string]string{"memory.available": "1Gi"}
		},
		"authorization.mode Webhook needs kubeconfig": func(c *agent.Config, _ *agent.Options) { c.Kubelet.EnableServer = new(true) },
		"port: 65536 is not between 1 and 65535":      func(c *agent.Config, _ *agent.Options) { c.Kubelet.Port = 65536 },
		"authentication.webhook.enabled needs kubeconfig: the API server knows": func(c *agent.Config, _ *agent.Options) {
			c.Kubelet.EnableServer, c.Kubelet.Authorization.Mode, c.Kubelet.Authentication.Webhook.Enabled = new(true), kubeletconfig.AlwaysAllow, new(true)
		},
	} {
		root := filepath.Join(t.TempDir(), "root")
		c, o := agent.Config{Node: kubeletconfig.NodeConfiguration{RootDir: root}}, agent.Options{Logger: quiet, Sources: sources}
		set(&c, &o)
		_, err := agent.New(t.Context(), c, o)
		require.ErrorContains(t, err, want)
		require.True(t, strings.HasPrefix(err.Error(), "config of the agent: "), err.Error())
		require.NoDirExists(t, root)
	}
}

// A second call of Run returns an error that names the agent.
func TestSecondRunReturnsError(t *testing.T) {
	a, err := agent.New(t.Context(), agent.Config{}, agent.Options{
		Logger: quiet, Ephemeral: true, Runtime: critest.New(critest.Options{}), Sources: []source.Source{source.Pods("code", nil)},
	})
	require.NoError(t, err)
	require.NotNil(t, a.Reconciler())
	require.Nil(t, a.Handler())
	require.Nil(t, a.Node())
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.NoError(t, a.Run(ctx))
	require.EqualError(t, a.Run(ctx), "agent.Agent: second call of Run")
}
