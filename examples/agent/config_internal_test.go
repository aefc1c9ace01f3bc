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
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

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
		LogDir:              "/var/log/pods",       // the default
		LogLinkDir:          "/var/log/containers", // likewise
		LogMaxFiles:         5,
		LogLevel:            slog.LevelInfo,
		GC: gcConfig{
			ImageGCHighThresholdPercent: new(85), ImageGCLowThresholdPercent: new(80),
			ImageMinimumGCAge: metav1.Duration{Duration: 2 * time.Minute},
		},
		evictionConfig: evictionConfig{EvictionHard: map[string]string{
			"memory.available": "100Mi", "nodefs.available": "10%", "nodefs.inodesFree": "5%", "imagefs.available": "15%", "imagefs.inodesFree": "5%",
		}},
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
		"manifest: /x":                          `FILE: manifest: error unmarshaling JSON: while decoding JSON: json: unknown field "manifest"`,
		"manifests: /y":                         `FILE: error converting YAML to JSON: yaml: unmarshal errors:` + "\n" + `  line 3: key "manifests" already set in map`,
		"- /x":                                  `FILE: error converting YAML to JSON: yaml: line 2: did not find expected key`,
		"logMaxSize: 10Mib":                     `FILE: logMaxSize: error unmarshaling JSON: while decoding JSON: quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'`,
		"logLevel: loud":                        `FILE: logLevel: error unmarshaling JSON: while decoding JSON: slog: level string "loud": unknown name`,
		"evictionHard: {memory.available: 1Gi}": `FILE: evictionHard and evictionSoft need runtime and cgroupRoot: the pods' cgroups are what is measured`,
		"rotateCertificates: true":              `FILE: rotateCertificates needs kubeconfig: it is written there`,
		"keepObjects: true":                     `FILE: keepObjects needs kubeconfig: other config maps and secrets are on disk already`,
		"serverTLSBootstrap: true":              `FILE: serverTLSBootstrap needs kubeconfig: the certificate is for the addresses of its Node`,
		"port: 65536":                           `FILE: port: 65536 is not between 0 and 65535`,
		"enableServer: true":                    `FILE: authorization.mode Webhook needs kubeconfig: the API server decides`,
		"enableServer: true\nauthorization: {mode: RBAC}":                                   `FILE: authorization.mode: "RBAC" is neither Webhook nor AlwaysAllow`,
		"enableServer: true\nauthorization: {mode: AlwaysAllow}\ntlsCertFile: /c":           `FILE: tlsCertFile and tlsPrivateKeyFile: one of them is not set`,
		"bootstrapKubeconfig: /b":                                                           `FILE: bootstrapKubeconfig needs rotateCertificates`,
		"shutdownGracePeriod: 1500ms":                                                       `FILE: shutdownGracePeriod: 1.5s and 0s must be whole seconds`,
		"shutdownGracePeriodCriticalPods: 1s":                                               `FILE: shutdownGracePeriodCriticalPods: 1s must be between 0 and shutdownGracePeriod, which is 0s`,
		"shutdownGracePeriodByPodPriority: [{priority: 1, shutdownGracePeriodSeconds: -1}]": `FILE: shutdownGracePeriodByPodPriority[0]: -1 s for priority 1 must not be negative, nor there twice`,
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
	require.EqualError(t, err, "flags: neither manifests nor manifestURL nor kubeconfig is set: there would be nothing to run")
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
