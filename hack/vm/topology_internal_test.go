// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestParseTopology(t *testing.T) {
	for _, c := range []struct {
		name, text string
		want       topology
	}{
		{"all fields", "2 sockets 4 nodes 8 cores 2 threads 512 MiB", topology{2, 4, 8, 2, 512}},
		{"singular and another order", " 1024 MiB 1 thread\n1 core 1 node 1 socket", topology{1, 1, 1, 1, 1024}},
		{"nodes of two sockets", "4 sockets 2 nodes 1 core 1 thread 64 MiB", topology{4, 2, 1, 1, 64}},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := parseTopology(c.text)
			require.NoError(t, err)
			assert.Equal(t, c.want, got)
		})
	}
}

func TestParseTopologyNamesFieldOfError(t *testing.T) {
	for _, c := range []struct{ name, text, want string }{
		{"empty", "", "field sockets is missing"},
		{"missing", "2 sockets 2 nodes 2 cores 512 MiB", "field threads is missing"},
		{"number without field", "2 sockets 2", `"2" is followed by no field`},
		{"unknown", "2 dies", `field "dies" is unknown: there are sockets, nodes, cores, threads and MiB`},
		{"twice", "2 sockets 1 socket", "field sockets occurs twice"},
		{"no number", "two sockets", `field sockets: "two" is no number from 1 to 255`},
		{"zero", "0 nodes", `field nodes: "0" is no number from 1 to 64`},
		{"three threads", "3 threads", `field threads: "3" is no number from 1 to 2`},
		{"memory too small", "63 MiB", `field MiB: "63" is no number from 64 to 65536`},
		{"overflow", "99999999999999999999 cores", `field cores: "99999999999999999999" is no number from 1 to 255`},
		{"long word", strings.Repeat("9", 50) + " cores", `field cores: "` + strings.Repeat("9", 40) + `" is no number from 1 to 255`},
		{"too many CPUs", "2 sockets 2 nodes 64 cores 2 threads 64 MiB", "fields sockets, cores and threads: 256 CPUs, more than 255"},
		{"node with part of a core", "1 socket 2 nodes 3 cores 2 threads 64 MiB", "field nodes: 3 cores cannot be divided among 2 nodes"},
		{"node with half of a socket", "2 sockets 3 nodes 3 cores 1 thread 64 MiB", "field nodes: 3 nodes are neither a multiple nor a divisor of 2 sockets"},
		{"too much memory", "2 sockets 2 nodes 1 core 1 thread 40000 MiB", "field MiB: the nodes have more than 64 GiB in total"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := parseTopology(c.text)
			assert.EqualError(t, err, c.want)
		})
	}
}

func TestTopologyArguments(t *testing.T) {
	machine := topology{sockets: 2, nodes: 2, cores: 3, threads: 2, memory: 512}
	assert.Equal(t, "-m 1024 -smp cpus=12,sockets=2,cores=3,threads=2"+
		" -object memory-backend-ram,id=memory0,size=512M -numa node,nodeid=0,cpus=0-5,memdev=memory0"+
		" -object memory-backend-ram,id=memory1,size=512M -numa node,nodeid=1,cpus=6-11,memdev=memory1",
		strings.Join(machine.arguments(), " "))
}
