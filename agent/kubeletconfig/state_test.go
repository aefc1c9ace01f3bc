// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package kubeletconfig_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed81659283/nodeagent/agent/kubeletconfig"
)

// Each field that Configuration does not have is in the table with a state, and the accepted values of its row are accepted.
func TestFieldsHaveStates(t *testing.T) {
	fields := kubeletconfig.Fields()
	require.True(t, slices.IsSortedFunc(fields, func(a, b kubeletconfig.Field) int { return strings.Compare(a.Name, b.Name) }))
	for _, f := range fields {
		assert.NotEmpty(t, f.State, f.Name)
		assert.True(t, f.State == kubeletconfig.DefaultOnly || len(f.Accept) == 0, f.Name)
		if f.Name == "enforceNodeAllocatable" { // with cgroupsPerQOS: false
			continue
		}
		for _, value := range f.Accept {
			c, err := kubeletconfig.Parse([]byte(header + nest(f.Name, value)))
			require.NoError(t, err, f.Name)
			c.SetDefaults(kubeletconfig.Defaults{Cluster: true, RemoteRuntime: true})
			require.NoError(t, c.Validate(), f.Name)
		}
	}
}

// Each gate with its default is accepted. A value that is not supported is refused, also if AllAlpha or AllBeta sets it.
func TestGatesAreCheckedByState(t *testing.T) {
	validate := func(gates map[string]bool) error {
		c := kubeletconfig.Configuration{FeatureGates: gates}
		c.SetDefaults(kubeletconfig.Defaults{})
		return c.Validate()
	}
	all := map[string]bool{}
	for _, g := range kubeletconfig.Gates() {
		assert.NotEmpty(t, g.State, g.Name)
		all[g.Name] = g.Default
		if !g.Locked && g.State == kubeletconfig.DefaultOnly && g.Name != "AllAlpha" && g.Name != "AllBeta" {
			require.ErrorContains(t, validate(map[string]bool{g.Name: !g.Default}), "featureGates: "+g.Name)
		}
	}
	require.NoError(t, validate(all))
	require.NoError(t, validate(map[string]bool{"ContextualLogging": false, "GracefulNodeShutdown": true, "AllAlpha": false}))
	require.EqualError(t, validate(map[string]bool{"NodeSwap": false, "Nope": true}),
		"featureGates: cannot set feature gate NodeSwap to false, feature is locked to true\nfeatureGates: unrecognized feature gate: Nope")
	require.ErrorContains(t, validate(map[string]bool{"AllAlpha": true}), "featureGates: CompositePodGroup is enabled, but depends on features that are disabled: GenericWorkload")
	require.ErrorContains(t, validate(map[string]bool{"AllBeta": true}), "featureGates: AllBeta: true is not supported by this version for DRAWorkloadResourceClaims, ")
	require.ErrorContains(t, validate(map[string]bool{"CompositePodGroup": true}),
		"featureGates: CompositePodGroup is enabled, but depends on features that are disabled: GenericWorkload, TopologyAwareWorkloadScheduling")
}

// These gates change the kubelet: the addresses of its serving certificate, the user of a client certificate, and the UIDs of static pods.
func TestGatesOfTheKubeletAreNotIgnored(t *testing.T) {
	for gate, on := range map[string]bool{"AllowDNSOnlyNodeCSR": true, "AllowParsingUserUIDFromCertAuth": false, "PodLevelResourcesFixDefaulting": false} {
		_, err := kubeletconfig.Parse([]byte(header + fmt.Sprintf("featureGates: {%s: %t}", gate, on)))
		require.EqualError(t, err, fmt.Sprintf("featureGates: %s: %t is not supported by this version, want %t", gate, on, !on))
		_, err = kubeletconfig.Parse([]byte(header + fmt.Sprintf("featureGates: {%s: %t}", gate, !on)))
		require.NoError(t, err)
	}
}

// The whole of enforceNodeAllocatable must be pods where pods have cgroups.
func TestEnforceNodeAllocatableFollowsCgroupsPerQOS(t *testing.T) {
	for text, valid := range map[string]bool{
		"enforceNodeAllocatable: [pods]":                                  true,
		"enforceNodeAllocatable: []":                                      false,
		"enforceNodeAllocatable: [none]":                                  false,
		"enforceNodeAllocatable: []\ncgroupsPerQOS: false":                true,
		"enforceNodeAllocatable: [none]\ncgroupsPerQOS: false":            true,
		"imageServiceEndpoint: a":                                         false,
		"imageServiceEndpoint: a\ncontainerRuntimeEndpoint: a":            true,
		"podPidsLimit: -7":                                                true,
		"logging: {vmodule: [{filePattern: a, verbosity: 1}]}":            true,
		"logging: {vmodule: [{filePattern: \"\"}]}":                       false,
		"logging: {vmodule: [{filePattern: a=b}]}":                        false,
		"logging: {verbosity: 4294967295}":                                false,
		"maxOpenFiles: -1":                                                false,
		"podLogsDir: /lög":                                                false,
		"registerWithTaints: [{key: a, value: -}]":                        false,
		"registerWithTaints: [{key: a, timeAdded: 2026-01-01T00:00:00Z}]": false,
	} {
		c := parse(t, text)
		assert.Equal(t, valid, c.Validate() == nil, text)
	}
}

// nest returns the YAML of a field with a path such as memorySwap.swapBehavior.
func nest(path, value string) string {
	names := strings.Split(path, ".")
	return strings.Join(names, ": {") + ": " + value + strings.Repeat("}", len(names)-1) + "\n"
}
