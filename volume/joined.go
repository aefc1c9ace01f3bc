// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package volume

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// unmatchedError is why a pod cannot have the volumes of these names: there are no plugins for their kinds any more. It has the kubelet's text.
// Source: WaitForAttachAndMount in pkg/kubelet/volumemanager/volume_manager.go.
type unmatchedError []string

// Error lists the volumes, and the cause for each.
func (e unmatchedError) Error() string {
	names := slices.Sorted(slices.Values(e))
	var causes []error
	for _, name := range names {
		causes = append(causes, fmt.Errorf("failed to get Plugin from volumeSpec for volume %q err=no volume plugin matched", name))
	}
	if more := len(names) - maxListed; more > 0 {
		names = append(names[:maxListed], fmt.Sprintf("and %d more", more))
	}
	return fmt.Sprintf("unmounted volumes=%v, unattached volumes=[], failed to process volumes=%v: %v", names, names, join(causes))
}

// maxListed is how many volumes an error names.
const maxListed = 5

// joined is several errors in one line.
type joined []error

// join returns errors as one, whose text names the first of them.
func join(errs []error) error {
	if len(errs) == 1 {
		return errs[0]
	}
	return joined(errs)
}

// Error returns the texts of the first errors.
func (j joined) Error() string {
	var texts []string
	for i, err := range j {
		if i == maxListed {
			texts = append(texts, "and "+strconv.Itoa(len(j)-i)+" more")
			break
		}
		texts = append(texts, err.Error())
	}
	return strings.Join(texts, "; ")
}

// Unwrap returns all errors.
func (j joined) Unwrap() []error { return j }
