// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package cni_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed81659283/nodeagent/cni"
)

func TestParseNetwork(t *testing.T) {
	for name, test := range map[string]struct{ data, err, version string }{
		"plain":                 {data: `{"name":"n","cniVersion":"1.0.0","plugins":[{"type":"a"}]}`, version: "1.0.0"},
		"no version":            {data: `{"name":"n","plugins":[{"type":"a"}]}`},
		"the highest version":   {data: `{"name":"n","cniVersion":"0.3.1","cniVersions":["0.4.0","1.0.0","2.0.0"],"plugins":[{"type":"a"}]}`, version: "1.0.0"},
		"no number":             {data: `{"name":"n","cniVersions":["abc"],"plugins":[{"type":"a"}]}`, err: "invalid cniVersions entry abc"},
		"unknown version":       {data: `{"name":"n","cniVersion":"7.0.0","plugins":[{"type":"a"}]}`, err: `cniVersion: "7.0.0" is none of 0.1.0, `},
		"no name":               {data: `{"plugins":[{"type":"a"}]}`, err: "no name"},
		"empty name":            {data: `{"name":"","plugins":[{"type":"a"}]}`, err: `name: "" must have`},
		"name that is a path":   {data: `{"name":"../n","plugins":[{"type":"a"}]}`, err: `name: "../n" must have`},
		"long name":             {data: `{"name":"` + strings.Repeat("n", 101) + `","plugins":[{"type":"a"}]}`, err: "name: "},
		"no plugins":            {data: `{"name":"n"}`, err: "plugins: must not be empty"},
		"empty plugins":         {data: `{"name":"n","plugins":[]}`, err: "no plugins in list"},
		"null for a plugin":     {data: `{"name":"n","plugins":[null]}`, err: "missing 'type'"},
		"no type":               {data: `{"name":"n","plugins":[{}]}`, err: "missing 'type'"},
		"type that is a path":   {data: `{"name":"n","plugins":[{"type":"a"},{"type":"../b"}]}`, err: `plugins[1].type: "../b" is not a file name`},
		"too many plugins":      {data: `{"name":"n","plugins":[` + strings.Repeat(`{"type":"a"},`, 64) + `{"type":"a"}]}`, err: "plugins: 65 of them"},
		"text for a boolean":    {data: `{"name":"n","disableCheck":"TRUE","plugins":[{"type":"a"}]}`},
		"other text":            {data: `{"name":"n","disableGC":"yes","plugins":[{"type":"a"}]}`, err: "disableGC"},
		"a single plugin":       {data: `{"name":"n","type":"a"}`, err: "plugins: must not be empty"},
		"no JSON":               {data: `{"name":`, err: "unexpected end"},
		"too long":              {data: strings.Repeat(" ", 1<<20+1), err: "1048577 bytes exceed the limit"},
		"a nest without an end": {data: strings.Repeat("[", 1<<20), err: "exceeded max depth"},
	} {
		t.Run(name, func(t *testing.T) {
			n, err := cni.ParseNetwork([]byte(test.data))
			if test.err != "" {
				require.ErrorContains(t, err, test.err)
				return
			}
			require.NoError(t, err)
			assert.Equal(t, "n", n.Name)
			assert.Equal(t, test.version, n.Version)
			assert.Equal(t, []cni.Plugin{{Type: "a"}}, n.Plugins)
		})
	}
}

func TestParseNetworkCapabilities(t *testing.T) {
	n := network(t, "n", "1.0.0", `{"type":"a"}`, `{"type":"b","capabilities":{"portMappings":true,"dns":false,"bandwidth":true}}`)
	assert.Equal(t, []string{"bandwidth", "portMappings"}, n.Plugins[1].Capabilities)
	assert.True(t, n.HasCapability(cni.CapBandwidth))
	assert.False(t, n.HasCapability(cni.CapDNS))
}

func TestParsePlugin(t *testing.T) {
	n, err := cni.ParsePlugin([]byte(`{"name":"n","cniVersion":"0.4.0","type":"a","mtu":1400}`))
	require.NoError(t, err)
	assert.Equal(t, "0.4.0", n.Version)
	assert.JSONEq(t, `{"name":"n","cniVersion":"0.4.0","plugins":[{"name":"n","cniVersion":"0.4.0","type":"a","mtu":1400}]}`, string(n.Config()))

	_, err = cni.ParsePlugin([]byte(list("n", "0.4.0", plugin("a"))))
	require.ErrorContains(t, err, "missing 'type'", "a list is no configuration of a single plugin")
}

func TestChooseNetworks(t *testing.T) {
	var all []*cni.Network
	for _, name := range []string{"x", "y", "z"} {
		all = append(all, network(t, name, "1.0.0", plugin("a")))
	}
	for _, test := range []struct {
		name  string
		count int
		want  string
	}{
		{"", 0, "x"}, {"", 1, "x"}, {"", 2, "xy"}, {"", 9, "xyz"}, {"y", 0, "y"}, {"y", 2, "yz"}, {"z", 5, "z"},
	} {
		chosen, err := cni.ChooseNetworks(all, test.name, test.count)
		require.NoError(t, err)
		var names string
		for _, n := range chosen {
			names += n.Name
		}
		assert.Equal(t, test.want, names, "%+v", test)
	}
	_, err := cni.ChooseNetworks(all, "w", 1)
	require.ErrorIs(t, err, cni.ErrNoNetwork)
	require.ErrorContains(t, err, `none is called "w"`)
	_, err = cni.ChooseNetworks(nil, "", 1)
	require.ErrorIs(t, err, cni.ErrNoNetwork)
}

// A parsed network is complete: parsing its configuration again yields an equal network. Its name is safe in file names.
func FuzzParseNetwork(f *testing.F) {
	files, err := filepath.Glob("testdata/conf/*")
	require.NoError(f, err)
	for _, file := range files {
		data, err := os.ReadFile(file)
		require.NoError(f, err)
		f.Add(data)
	}
	f.Add([]byte(`{"name":"n","cniVersions":["0.4.0"],"disableCheck":"true","plugins":[{"type":"a","ipam":{},"capabilities":{"x":true}}]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		for _, parse := range []func([]byte) (*cni.Network, error){cni.ParseNetwork, cni.ParsePlugin} {
			n, err := parse(data)
			if err != nil {
				continue
			}
			require.Equal(t, n.Name, filepath.Base(n.Name))
			require.NotEmpty(t, n.Plugins)
			again, err := cni.ParseNetwork(n.Config())
			require.NoError(t, err)
			require.Equal(t, n.Plugins, again.Plugins)
			require.Equal(t, n.Version, again.Version)
		}
	})
}
