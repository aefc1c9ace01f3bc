// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"strconv"
	"strings"
)

// maxTopologyCPUs limits the number of CPUs whose topology is read, because each CPU has files of its own.
const maxTopologyCPUs = 8192

// readTopology stores in m how many cores, sockets, books and drawers have an online CPU. Only machines of type s390x have
// books and drawers.
func (f files) readTopology(m *Info) {
	text, err := f.readFile("sys/devices/system/cpu/online")
	if err != nil {
		return
	}
	cores, sockets, books, drawers := map[string]bool{}, map[string]bool{}, map[string]bool{}, map[string]bool{}
	for _, cpu := range listCPUs(strings.TrimSpace(string(text))) {
		of := func(name string) string {
			return f.firstID("sys/devices/system/cpu/cpu" + strconv.Itoa(cpu) + "/topology/" + name)
		}
		drawer, book, socket := of("drawer_id"), of("book_id"), of("physical_package_id")
		if socket == "" {
			continue // the kernel reports no topology
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

// listCPUs returns the CPU numbers in a list such as "0-3,8", at most maxTopologyCPUs. An invalid list yields nil.
func listCPUs(list string) (cpus []int) {
	if _, err := countCPUList(list); err != nil {
		return nil
	}
	for part := range strings.SplitSeq(list, ",") {
		from, to, isRange := strings.Cut(part, "-")
		if !isRange {
			to = from
		}
		first, _ := strconv.Atoi(from) // both were parsed before
		last, _ := strconv.Atoi(to)
		for cpu := first; cpu <= last && len(cpus) < maxTopologyCPUs; cpu++ {
			cpus = append(cpus, cpu)
		}
	}
	return cpus
}
