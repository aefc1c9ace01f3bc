// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package netns_test

import (
	"errors"
	"fmt"
	"log"
	"net"

	"github.com/seed81659283/nodeagent/cni/netns"
)

// The network namespaces of an agent, which runs as root: namespaces from before a reboot are removed, and a new one is
// used.
func ExampleNew() {
	dir := netns.New("/run/agent/netns")
	names, err := dir.Names()
	if err != nil {
		log.Fatal(err)
	}
	for _, name := range names {
		if dir.Pinned(name) {
			continue
		}
		if failed, ok := errors.AsType[*netns.Error](dir.Remove(name)); ok {
			log.Print(failed.Path, ": ", failed.Err)
		}
	}
	path, err := dir.Create("sandbox1")
	if err != nil {
		log.Fatal(err)
	}
	err = netns.Do(path, func() error {
		links, err := net.Interfaces()
		fmt.Println(len(links))
		return err
	})
	fmt.Println(err, dir.Remove("sandbox1"))
}
