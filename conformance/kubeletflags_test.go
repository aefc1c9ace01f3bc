// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package conformance_test

import (
	"context"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/pflag"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	cliflag "k8s.io/component-base/cli/flag"
	logsapi "k8s.io/component-base/logs/api/v1"
	"k8s.io/kubernetes/cmd/kubelet/app"
	"k8s.io/kubernetes/cmd/kubelet/app/options"
	kubeletconfigapi "k8s.io/kubernetes/pkg/kubelet/apis/config"

	"github.com/seed81659283/nodeagent/agent/kubeletflags"
)

// The kubelet has the flags of the log format json. Its package has dependencies that no test here needs.
var _ = func() bool {
	if err := logsapi.RegisterLogFormat(logsapi.JSONLogFormat, nil, logsapi.LoggingStableOptions); err != nil {
		panic(err)
	}
	return true
}()

// kubeletFlagSet returns the flags of the kubelet, as cmd/kubelet/app/server.go creates them, which set the fields of both arguments.
func kubeletFlagSet(flags *options.KubeletFlags, config *kubeletconfigapi.KubeletConfiguration) *pflag.FlagSet {
	set := pflag.NewFlagSet("kubelet", pflag.ContinueOnError)
	set.SetNormalizeFunc(cliflag.WordSepNormalizeFunc)
	flags.AddFlags(set)
	options.AddKubeletConfigFlags(set, config)
	options.AddGlobalFlags(set)
	set.BoolP("help", "h", false, "")
	return set
}

// Flags has every flag of the kubelet with its shorthand, type, default and warning, and no other flag.
func TestKubeletFlagsHaveTheFlagsOfTheKubelet(t *testing.T) {
	config, err := options.NewKubeletConfiguration()
	require.NoError(t, err)
	type flag struct{ Name, Shorthand, Type, Default, Deprecated string }
	var theirs, ours []flag
	kubeletFlagSet(options.NewKubeletFlags(), config).VisitAll(func(f *pflag.Flag) {
		theirs = append(theirs, flag{f.Name, f.Shorthand, f.Value.Type(), f.DefValue, f.Deprecated})
		optional := map[string]string{"bool": "true", "version": "true"}[f.Value.Type()]
		assert.Equal(t, optional, f.NoOptDefVal, f.Name)
		assert.False(t, f.Hidden, f.Name)
	})
	for _, f := range kubeletflags.Flags() {
		ours = append(ours, flag{f.Name, f.Shorthand, f.Type, f.Default, f.Deprecated})
	}
	require.Empty(t, cmp.Diff(theirs, ours))
}

// Command lines that the kubelet refuses before it reads a file have the kubelet's error, if their syntax is wrong.
func TestKubeletFlagsHaveTheErrorsOfTheKubelet(t *testing.T) {
	for _, args := range []string{
		"--nope", "--nope=1", "--Max-Pods=1", "--network-plugin=cni", "--pod-infra-container-image=pause", "--container_runtime=remote", "-x", "-hx", "-v", "-vx", "--v=-1",
		"--max-pods=x", "--max-pods", "--=x", "---", "--max-pods=99999999999", "--sync-frequency=5", "--register-node=maybe", "--version=x", "x y", "-- x",
		"--register-node false", "--feature-gates=A", "--feature-gates=A=b", "--eviction-hard=memory.available=1", "--eviction-soft-grace-period=a",
		"--cpu-manager-policy-options=", "--manifest-url-header=a", "--address=host", "--healthz-bind-address=1.2.3.4.5", "--vmodule=a", "--vmodule=a=x", "--vmodule=a=b=c",
		"--cluster-dns=\"a", "--system-reserved=cpu",
	} {
		cmd := app.NewKubeletCommand(context.Background())
		cmd.SetArgs(strings.Split(args, " "))
		cmd.SilenceErrors = true
		theirs := cmd.Execute()
		_, ours := kubeletflags.Parse(strings.Split(args, " "))
		if assert.Error(t, theirs, args) && assert.Error(t, ours, args) {
			assert.Equal(t, theirs.Error(), ours.Error(), args)
		}
	}
}
