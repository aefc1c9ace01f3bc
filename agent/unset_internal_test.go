// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"reflect"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed81659283/nodeagent/agent/kubeletconfig"
	"github.com/seed81659283/nodeagent/lifecycle"
	"github.com/seed81659283/nodeagent/lifecycle/podspec"
)

// unsetOptions are the options of pods that the agent leaves unset before it reads the status of its runtime, with the
// reason.
var unsetOptions = map[string]string{
	"CgroupParent":    "set by the cgroups of pods, which need the runtime's cgroup driver",
	"RuntimeHandlers": "set in createPodParts, which needs the runtime's status",
	"UserNamespace":   "set in createPodParts, likewise",
	"RuntimeClasses":  "set for a cluster alone: classes are its objects",
	"SELinux":         "set in mount if the host enforces it",

	"SeccompRoot":    "podspec has the kubelet's default",
	"SeccompDefault": "off in the kubelet by default",
	"ResolvConf":     "left to the runtime, which reads the file of the host",
	"NoResolvConf":   "no field of the config asks for it",
	"MaskedPaths":    "podspec has the usual ones",
}

// Every option of pods and directories is set by the agent, or listed in unsetOptions. Allocatable, Warn and LogLinks were
// once unset by accident.
func TestAgentSetsAllOptionsOfPods(t *testing.T) {
	c := Config{Node: kubeletconfig.NodeConfiguration{NodeName: "n1", RootDir: t.TempDir(), ContainerLogsDir: "/var/log/containers"}}
	c.Kubelet.ClusterDNS, c.Kubelet.ClusterDomain = []string{"10.96.0.10"}, "cluster.local"
	a := newAgent(t, c)
	var o lifecycle.Options
	require.NoError(t, a.setPodOptions(t.Context(), &o))
	require.NoError(t, a.createVolumes(t.Context(), &o))
	unset := func(options any) (names []string) {
		v := reflect.ValueOf(options)
		for i := range v.NumField() {
			if v.Field(i).IsZero() {
				names = append(names, v.Type().Field(i).Name)
			}
		}
		return names
	}
	for _, name := range unset(o.Spec) {
		require.Contains(t, unsetOptions, name, "podspec.Options.%s is not set", name)
	}
	require.Equal(t, []string{"LoseStatuses"}, unset(o.Dirs), "only an agent with Options.Ephemeral sets it")
	for name := range unsetOptions {
		_, ok := reflect.TypeFor[podspec.Options]().FieldByName(name)
		require.True(t, ok, "podspec.Options has no %s", name)
	}
}
