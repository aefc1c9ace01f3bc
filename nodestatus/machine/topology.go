// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"strconv"
	"strings"
)

// maxTopology is of how many CPUs the topology is read, each of which has files of its own.
const maxTopology = 8192

// topology counts the cores, sockets, books and drawers that have a CPU that is online. Only s390x has books and drawers.
func (f files) topology(m *Info) {
	text, err := f.read("sys/devices/system/cpu/online")
	if err != nil {
		return
	}
	cores, sockets, books, drawers := map[string]bool{}, map[string]bool{}, map[string]bool{}, map[string]bool{}
	for _, cpu := range onlineCPUs(strings.TrimSpace(string(text))) {
		of := func(name string) string {
			return f.first("sys/devices/system/cpu/cpu" + strconv.Itoa(cpu) + "/topology/" + name)
		}
		drawer, book, socket := of("drawer_id"), of("book_id"), of("physical_package_id")
		if socket == "" {
			continue // a kernel without topology, which knows of no core either
		}
		if drawer != "" {
			drawers[drawer] = true
		}
		if book != "" {
			books[drawer+"/"+book] = true
		}
		socket = drawer + "/" + book + "/" + socket
		sockets[socket] = true
		if core := of("core_id"); core != "" {
			cores[socket+"/"+core] = true
		}
	}
	m.Cores, m.Sockets, m.Books, m.Drawers = len(cores), len(sockets), len(books), len(drawers)
}

// onlineCPUs returns the first numbers of a list such as "0-3,8"; none where it is not one.
func onlineCPUs(list string) (cpus []int) {
	if _, err := parseCPUs(list); err != nil {
		return nil
	}
	for part := range strings.SplitSeq(list, ",") {
		from, to, isRange := strings.Cut(part, "-")
		if !isRange {
			to = from
		}
		first, _ := strconv.Atoi(from) // both were parsed before
		last, _ := strconv.Atoi(to)
		for cpu := first; cpu <= last && len(cpus) < maxTopology; cpu++ {
			cpus = append(cpus, cpu)
		}
	}
	return cpus
}
