// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/seed81659283/nodeagent/images/credential"
)

// The file that users begin with is read without a complaint, and every line of it arrives. The state directory is a
// flag here, because it is made.
func TestFileOfTheExample(t *testing.T) {
	state := filepath.Join(t.TempDir(), "state")
	c, err := parse([]string{"-config", "agent.yaml", "-state", state, "-node", "n1"})
	require.NoError(t, err)
	require.DirExists(t, state)
	require.Zero(t, c.LogMaxSize.Cmp(resource.MustParse("10Mi")))
	c.LogMaxSize = resource.Quantity{}
	require.Equal(t, config{
		NodeName:            "n1",
		Runtime:             "unix:///run/containerd/containerd.sock",
		StateDir:            state,
		Manifests:           "/etc/nodeagent/manifests",
		Objects:             "/etc/nodeagent/objects",
		CgroupRoot:          "/",
		ClusterDNS:          []netip.Addr{netip.MustParseAddr("10.96.0.10")},
		ClusterDomain:       "cluster.local",
		DockerConfigs:       []string{"/etc/nodeagent/config.json"},
		CredentialPlugins:   credential.PluginConfig{Providers: []credential.PluginSpec{}},
		CredentialPluginDir: "/usr/libexec/nodeagent/credentials",
		LogDir:              "/var/log/pods", // the default
		LogMaxFiles:         5,
		LogLevel:            slog.LevelInfo,
	}, c)
	text, err := os.ReadFile("agent.yaml")
	require.NoError(t, err)
	require.Contains(t, string(text), "\nstateDir: /var/lib/nodeagent\n")
}

// Flags come before the file, wherever they stand; what is in neither has its default.
func TestFlagsBeforeTheFile(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "agent.yaml")
	text := fmt.Sprintf("nodeName: file\nruntime: /file.sock\nmanifests: /file\nstateDir: %s/file\n", dir)
	require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
	c, err := parse([]string{"-node", "flag", "-config", file, "-manifests", "/flag"})
	require.NoError(t, err)
	require.Equal(t, []string{"flag", "/file.sock", "/flag", dir + "/file"}, []string{c.NodeName, c.Runtime, c.Manifests, c.StateDir})

	c, err = parse([]string{"-state", dir, "-manifests", "/flag"})
	require.NoError(t, err)
	host, err := os.Hostname()
	require.NoError(t, err)
	require.Equal(t, strings.ToLower(host), c.NodeName)
	require.Empty(t, c.Runtime, "plain processes")
}

// What is wrong with a config is said with the file, the field and the value or the reason.
func TestBadConfigs(t *testing.T) {
	for text, want := range map[string]string{
		"manifest: /x":         `FILE: manifest: error unmarshaling JSON: while decoding JSON: json: unknown field "manifest"`,
		"manifests: /y":        `FILE: error converting YAML to JSON: yaml: unmarshal errors:` + "\n" + `  line 3: key "manifests" already set in map`,
		"- /x":                 `FILE: error converting YAML to JSON: yaml: line 2: did not find expected key`,
		"logMaxSize: 10Mib":    `FILE: logMaxSize: error unmarshaling JSON: while decoding JSON: quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'`,
		"logLevel: loud":       `FILE: logLevel: error unmarshaling JSON: while decoding JSON: slog: level string "loud": unknown name`,
		"hostIPs: [nope]":      `FILE: hostIPs: error unmarshaling JSON: while decoding JSON: ParseAddr("nope"): unable to parse IP`,
		"parallelPulls: many":  `FILE: parallelPulls: error unmarshaling JSON: while decoding JSON: json: cannot unmarshal string into Go struct field config.parallelPulls of type int`,
		"credentialPlugins: 1": `FILE: credentialPlugins: error unmarshaling JSON: while decoding JSON: json: cannot unmarshal number into Go struct field config.credentialPlugins of type credential.PluginConfig`,
	} {
		dir := t.TempDir()
		file := filepath.Join(dir, "agent.yaml")
		require.NoError(t, os.WriteFile(file, []byte("manifests: /x\nstateDir: "+dir+"/state\n"+text+"\n"), 0o600))
		_, err := parse([]string{"-config", file})
		require.EqualError(t, err, strings.ReplaceAll(want, "FILE", file), text)
		require.NoDirExists(t, filepath.Join(dir, "state"), text)
	}
}

func TestNothingToRun(t *testing.T) {
	_, err := parse([]string{"-state", t.TempDir()})
	require.EqualError(t, err, "flags: neither manifests nor manifestURL is set: there would be nothing to run")
	_, err = parse([]string{"-config", "missing.yaml", "-manifests", "/x"})
	require.EqualError(t, err, "missing.yaml: open missing.yaml: no such file or directory")
	_, err = parse([]string{"manifests"})
	require.EqualError(t, err, `unexpected argument "manifests"`)
}

// A file without an end is refused, not read.
func TestConfigIsBounded(t *testing.T) {
	if _, err := os.Stat("/dev/zero"); err != nil {
		t.Skip("needs /dev/zero: ", err)
	}
	_, err := parse([]string{"-config", "/dev/zero"})
	require.EqualError(t, err, "/dev/zero: must not be larger than 1048576 bytes")
}
