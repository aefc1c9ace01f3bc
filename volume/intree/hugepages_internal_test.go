// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package intree

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/internal/podtest"
)

func TestPageSizeByMediumAndRequests(t *testing.T) {
	const (
		two  = "{requests: {hugepages-2Mi: 4Mi, memory: 1Mi, cpu: 1}}"
		both = "{requests: {hugepages-2Mi: 4Mi, hugepages-1Gi: 1Gi, memory: 1Mi, cpu: 1}}"
	)
	for name, c := range map[string]struct {
		medium    corev1.StorageMedium
		resources string
		size      int64
		err       string
	}{
		"one requested size":                      {"HugePages", two, 2 << 20, ""},
		"two requested sizes":                     {"HugePages", both, 0, "multiple huge page sizes"},
		"no requested size":                       {"HugePages", "{}", 0, "no resource request for huge pages"},
		"medium names one of two requested sizes": {"HugePages-1Gi", both, 1 << 30, ""},
		"medium names a size without request":     {"HugePages-1Gi", two, 0, "no resource request for huge pages"},
		"medium without number":                   {"HugePages-x", two, 0, "not a size"},
		"medium with exponent out of range":       {"HugePages-1e-2000000000", two, 0, "not a size: the exponent must be between -100 and 100"},
		"request with exponent out of range":      {"HugePages", "{requests: {hugepages-1e-2000000000: 1Mi, hugepages-2Mi: 4Mi}}", 2 << 20, ""},
	} {
		t.Run(name, func(t *testing.T) {
			size, err := pageSize(podtest.Pod(t, "{containers: [{name: c, image: i, resources: "+c.resources+"}]}"), c.medium)
			assert.Equal(t, c.size, size)
			if c.err == "" {
				require.NoError(t, err)
			} else {
				require.ErrorContains(t, err, c.err)
			}
		})
	}
}
