// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package static

import (
	"flag"
	"io"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestParseOptions(t *testing.T) {
	opts, err := parseOptions([]string{
		"-cri", "unix:///x", "-image", "busybox", "-n", "3, 5", "-parallel", "2,0",
		"-agent", "a=sh -c {cri} {manifests}", "-agent", "b=sh {manifests}/{cri}", "-kubelet", "/bin/sh", "-seed", "7",
	}, io.Discard)
	require.NoError(t, err)
	assert.Equal(t, []int{3, 5}, opts.pods)
	assert.Equal(t, []int{2, 0}, opts.parallel)
	names := []string{}
	for _, a := range opts.agents {
		names = append(names, a.Name)
	}
	assert.Equal(t, []string{"a", "b", "kubelet"}, names)
	assert.True(t, opts.kubelet)
	assert.Equal(t, 10, opts.kills)
	assert.EqualValues(t, 7, opts.seed)
}

func TestParseOptionsErrors(t *testing.T) {
	needed := []string{"-cri", "unix:///x", "-image", "busybox"}
	tests := map[string]struct {
		args []string
		want string
	}{
		"nothing":                          {nil, "-cri and -image are needed"},
		"no image":                         {needed[:2], "-cri and -image are needed"},
		"stray argument":                   {append(needed, "stray"), `unexpected argument "stray"`},
		"no pods":                          {append(needed, "-n", "30,0"), "0 is less than 1"},
		"no number":                        {append(needed, "-n", "many"), `parsing "many"`},
		"no command":                       {append(needed, "-agent", "sh {cri} {manifests}"), "want NAME=COMMAND"},
		"no manifests":                     {append(needed, "-agent", "a=sh {cri}"), "no {manifests} in its command"},
		"no such agent":                    {append(needed, "-agent", "a=/no/such {cri} {manifests}"), "/no/such"},
		"no such kubelet":                  {append(needed, "-kubelet", "/no/such"), "/no/such"},
		"two agents with one name":         {append(needed, "-agent", "kubelet=sh {cri} {manifests}", "-kubelet", "/bin/sh"), "the name kubelet is taken"},
		"agent with the name of the floor": {append(needed, "-agent", "floor=sh {cri} {manifests}"), "the name floor is taken"},
		"no repeat":                        {append(needed, "-repeat", "0"), "-repeat must be positive"},
		"negative kill":                    {append(needed, "-kills", "-1"), "-kills, -idle and -settle not negative"},
		"negative idle time":               {append(needed, "-idle", "-1s"), "-kills, -idle and -settle not negative"},
		"CPU limit without memory limit":   {append(needed, "-limits", "100m"), `"100m" is neither CPU,MEMORY nor none`},
		"CPU limit that is no number":      {append(needed, "-limits", "much,32Mi"), `CPU limit "much"`},
		"memory limit without unit":        {append(needed, "-limits", "100m,0"), `memory limit "0" must be a number of Ki, Mi or Gi`},
		"too many volumes":                 {append(needed, "-volumes", "101"), "-volumes must be from 0 to 100"},
		"unknown flag":                     {append(needed, "-fast"), "flag provided but not defined"},
		"help flag":                        {[]string{"-h"}, flag.ErrHelp.Error()},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			_, err := parseOptions(test.args, io.Discard)
			assert.ErrorContains(t, err, test.want)
		})
	}
}
