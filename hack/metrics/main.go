// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Command metrics extracts the shapes of a kubelet's metrics pages, which scrape.sh has saved, into the lists that tests
// compare with: metrics LIST PAGES... Each PAGES is a directory with the pages of one machine. Families that one machine
// lacks, such as those of cgroup v2, may come from another machine.
package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/seed81659283/nodeagent/internal/promtest"
)

const usage = "usage: metrics LIST PAGES...\nLIST is the directory that is written, PAGES are directories that scrape.sh has written"

// header is at the start of each list.
const header = `# SPDX-FileCopyrightText: The nodeagent Authors
# SPDX-License-Identifier: Apache-2.0
#
# The shape of /%s of kubelet 1.37.1, by make metrics: name, type, labels and buckets.
`

func main() {
	if len(os.Args) < 3 {
		fmt.Fprintln(os.Stderr, usage)
		os.Exit(2)
	}
	for _, page := range []string{
		promtest.PageMetrics, promtest.PageProbes, promtest.PageResource, promtest.PageCadvisor, promtest.PageSLIs,
	} {
		if err := writeList(os.Args[1], page, os.Args[2:]); err != nil {
			fmt.Fprintln(os.Stderr, "metrics:", err)
			os.Exit(1)
		}
	}
}

// writeList writes the list of one page from all its scrapes.
func writeList(list, page string, scrapes []string) error {
	var families []promtest.Family
	for _, dir := range scrapes {
		more, err := read(filepath.Join(dir, page+".txt"))
		if err != nil {
			return err
		}
		families = mergeFamilies(families, more)
	}
	path := "metrics"
	if page != promtest.PageMetrics {
		path += "/" + page
	}
	var b strings.Builder
	fmt.Fprintf(&b, header, path)
	for _, family := range families {
		fmt.Fprintln(&b, family)
	}
	return os.WriteFile(filepath.Join(list, page+".txt"), []byte(b.String()), 0o644)
}

func read(file string) ([]promtest.Family, error) {
	page, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer page.Close()
	families, err := promtest.Parse(page)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return families, nil
}

// mergeFamilies adds new families, and new labels of existing families.
func mergeFamilies(to, from []promtest.Family) []promtest.Family {
	for _, family := range from {
		at, found := slices.BinarySearchFunc(to, family.Name, func(f promtest.Family, name string) int {
			return strings.Compare(f.Name, name)
		})
		if !found {
			to = slices.Insert(to, at, family)
			continue
		}
		labels := slices.Concat(to[at].Labels, family.Labels)
		slices.Sort(labels)
		to[at].Labels = slices.Compact(labels)
	}
	return to
}
