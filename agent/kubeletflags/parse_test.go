// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package kubeletflags_test

import (
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed81659283/nodeagent/agent/kubeletflags"
	"github.com/seed81659283/nodeagent/nodestatus"
)

const fieldWarning = "has been deprecated, This parameter should be set via the config file specified by the Kubelet's --config flag. " +
	"See https://kubernetes.io/docs/tasks/administer-cluster/kubelet-config-file/ for more information."

// Errors of the syntax are those of a kubelet 1.37.1, word by word. Other errors begin with flag and value.
func TestParseErrors(t *testing.T) {
	for args, want := range map[string]string{
		"--nope":                                "failed to parse kubelet flag: unknown flag: --nope",
		"--network-plugin=cni":                  "failed to parse kubelet flag: unknown flag: --network-plugin",
		"--container_runtime=remote":            "failed to parse kubelet flag: unknown flag: --container_runtime",
		"-x":                                    "failed to parse kubelet flag: unknown shorthand flag: 'x' in -x",
		"--max-pods=x":                          `failed to parse kubelet flag: invalid argument "x" for "--max-pods" flag: strconv.ParseInt: parsing "x": invalid syntax`,
		"--max-pods":                            "failed to parse kubelet flag: flag needs an argument: --max-pods",
		"--=x":                                  "failed to parse kubelet flag: bad flag syntax: --=x",
		"--version=x":                           `failed to parse kubelet flag: invalid argument "x" for "--version" flag: strconv.ParseBool: parsing "x": invalid syntax`,
		"--feature-gates=A":                     `failed to parse kubelet flag: invalid argument "A" for "--feature-gates" flag: malformed pair, expect string=bool`,
		"--eviction-hard=memory.available=1":    `failed to parse kubelet flag: invalid argument "memory.available=1" for "--eviction-hard" flag: malformed pair, expect string<string`,
		"--address=host":                        `failed to parse kubelet flag: invalid argument "host" for "--address" flag: "host" is not a valid IP address`,
		"--v=-1":                                `failed to parse kubelet flag: invalid argument "-1" for "-v, --v" flag: strconv.ParseUint: parsing "-1": invalid syntax`,
		"run --v=2":                             "unknown command run",
		"--register-node false":                 "unknown command false",
		"--lock-file=/l":                        `--lock-file=/l: the flag is not supported by this version, want ""`,
		"--cloud-provider=aws":                  `--cloud-provider=aws: the cloud provider is not supported by this version, want "external"`,
		"--maximum-dead-containers=5":           `--maximum-dead-containers=5: the flag is not supported by this version, want "-1"`,
		"--seccomp-default=true":                "--seccomp-default=true: seccompDefault: true is not supported by this version, want false",
		"--reserved-memory=0:cpu=1":             `failed to parse kubelet flag: invalid argument "0:cpu=1" for "--reserved-memory" flag: `,
		"--max-pods=0":                          "--max-pods=0: the value is not supported by this version: it would mean the default, 110",
		"--cert-dir=":                           "--cert-dir=: the value is not supported by this version: it is empty",
		"--container-runtime-endpoint=":         "--container-runtime-endpoint=: the value is not supported by this version: it is empty",
		"--node-ip=10.0.0.1,10.0.0.2":           "--node-ip=10.0.0.1,10.0.0.2: node IPs [10.0.0.1 10.0.0.2]: must be a single IP or a dual-stack pair of IPs",
		"--lock-file=/l --cloud-provider=x":     "--cloud-provider=x: the cloud provider is not supported by this version, want \"external\"\n--lock-file=/l: the flag is not supported by this version, want \"\"",
		"--node-labels=kubernetes.io/x=y":       "--node-labels=kubernetes.io/x=y: node label \"kubernetes.io/x\"=\"y\": a node sets labels of kubernetes.io",
		"--register-with-taints=k=v:Never":      `failed to parse kubelet flag: invalid argument "k=v:Never" for "--register-with-taints" flag: `,
		"--version=v2.0.0":                      `failed to parse kubelet flag: invalid argument "v2.0.0" for "--version" flag: version "v2.0.0" is not supported`,
		"--max-pods=99999999999":                `failed to parse kubelet flag: invalid argument "99999999999" for "--max-pods" flag: strconv.ParseInt: parsing "99999999999": value out of range`,
		"--hostname-override=\t":                "--hostname-override=\t: host name",
		"--vmodule=a=b=c":                       `failed to parse kubelet flag: invalid argument "a=b=c" for "--vmodule" flag: "a=b=c" does not have the pattern=N format`,
		"--log-json-info-buffer-size=1e1000000": `failed to parse kubelet flag: invalid argument "1e1000000" for "--log-json-info-buffer-size" flag: `,
	} {
		_, err := kubeletflags.Parse(strings.Split(args, " "))
		if assert.Error(t, err, args) {
			assert.True(t, strings.HasPrefix(err.Error(), want), "%s: %s", args, err)
		}
	}
}

// A deprecated flag is accepted, with the kubelet's warning for each use. Warnings are also returned with an error.
func TestParseWarnsOfDeprecatedFlags(t *testing.T) {
	line, err := kubeletflags.Parse([]string{"--max_pods=5", "--max-pods", "6", "--v=2", "--provider-id=p", "--maximum-dead-containers=-1"})
	require.NoError(t, err)
	require.Equal(t, []string{
		"Flag --max-pods " + fieldWarning, "Flag --max-pods " + fieldWarning,
		"Flag --maximum-dead-containers has been deprecated, Use --eviction-hard or --eviction-soft instead. Will be removed in a future version.",
	}, line.Warnings)
	line, err = kubeletflags.Parse([]string{"--fail-swap-on=false", "--nope"})
	require.Error(t, err)
	require.Equal(t, []string{"Flag --fail-swap-on " + fieldWarning}, line.Warnings)
}

// Help and version take precedence over errors of other flags, but not over errors of the syntax. Help precedes version.
func TestParseReturnsHelpAndVersion(t *testing.T) {
	for args, want := range map[string]string{
		"--version":                       "^Kubernetes " + regexp.QuoteMeta(nodestatus.Version) + "\n$",
		"--version=true --lock-file=/l":   "^Kubernetes v1",
		"--version=raw":                   `^version\.Info\{Major:"1", Minor:"37", .*GitVersion:"v1\.37\.1.*Platform:"[a-z]+/[a-z0-9]+"\}` + "\n$",
		"--version=false":                 "^$",
		"--version=" + nodestatus.Version: "^$",
		"--version --version=0":           "^$",
		"-h --version":                    `(?s)\nUsage:\n  kubelet \[flags\]\n\nFlags:\n.*--max-pods int32 +sets maxPods of the configuration file \(default 110\) \(DEPRECATED: This`,
		"--help --cpu-manager-policy=no":  `(?s)Usage:`,
		"--help=false":                    "^$",
	} {
		line, err := kubeletflags.Parse(strings.Split(args, " "))
		if assert.NoError(t, err, args) {
			assert.Regexp(t, want, line.Output, args)
		}
	}
	_, err := kubeletflags.Parse([]string{"--help", "--nope"})
	require.Error(t, err)
	_, err = kubeletflags.Parse([]string{"--version", "now"})
	require.EqualError(t, err, "unknown command now")
}

// The help text has every flag.
func TestHelpNamesEachFlag(t *testing.T) {
	line, err := kubeletflags.Parse([]string{"--help"})
	require.NoError(t, err)
	for _, f := range kubeletflags.Flags() {
		assert.Contains(t, line.Output, "--"+f.Name)
	}
}

// FuzzParse checks that no command line causes a panic.
func FuzzParse(f *testing.F) {
	f.Add("--max-pods=5\x00-v\x003\x00--node-labels=a=b,c")
	f.Add("--address=\x00--address=1.2.3.4\x00--reserved-memory=\x00--reserved-memory=0:memory=1")
	f.Add("--register-with-taints=a=b:NoSchedule,c:NoExecute\x00--feature-gates=AllBeta=false\x00--cluster-dns=\"a,b\"")
	f.Fuzz(func(t *testing.T, text string) {
		line, err := kubeletflags.Parse(strings.Split(text, "\x00"))
		if err == nil && line.ConfigDir == "" && !strings.Contains(text, "image-credential") {
			_, _ = line.Load(noFiles)
		}
	})
}
