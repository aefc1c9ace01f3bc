// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package cni_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed81659283/nodeagent/cni"
)

// The configurations of network providers reach their plugins unchanged, and each plugin gets the capabilities that it requests.
func TestIntegrationProviderConfigurations(t *testing.T) {
	files, err := filepath.Glob("testdata/conf/*.conflist")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			data, err := os.ReadFile(file)
			require.NoError(t, err)
			n := newNode(t)
			n.write("05-"+filepath.Base(file), string(data))
			network, err := cni.ParseNetwork(data)
			require.NoError(t, err)
			for _, plugin := range network.Plugins {
				n.plugins.Install(plugin.Type)
			}
			p := n.open()
			web := pod("1")
			web.Ports = []cni.PortMapping{{HostPort: 80, ContainerPort: 8080}}
			web.Annotations = map[string]string{cni.AnnotationEgressBandwidth: "1M"}
			_, err = p.Setup(t.Context(), web)
			require.NoError(t, err)
			calls := n.plugins.Calls()
			require.Len(t, calls, len(network.Plugins))
			for i, original := range pluginsOf(t, data) {
				got := objectOf(t, calls[i].Config)
				for key, value := range original {
					require.Equal(t, value, got[key], "%s of %s", key, calls[i])
				}
				require.Equal(t, network.Name, got["name"])
				require.Equal(t, network.Version, got["cniVersion"])
				told := objectOf(t, []byte(calls[i].Field("runtimeConfig")))
				var wanted []string
				for capability := range told {
					wanted = append(wanted, capability)
				}
				require.ElementsMatch(t, network.Plugins[i].Capabilities, wanted)
			}
			require.NoError(t, p.Teardown(t.Context(), "1"))
			n.requireNoFiles()
		})
	}
}
