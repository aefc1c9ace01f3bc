// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package quantity_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/seed81659283/nodeagent/internal/costtest"
	"github.com/seed81659283/nodeagent/internal/quantity"
)

func TestParseRefusesExpensiveNumbers(t *testing.T) {
	for text, want := range map[string]string{
		"1e-2000000000": "the exponent must be between -100 and 100", "1E2000000000": "the exponent must be between -100 and 100",
		"+.5e101": "the exponent must be between -100 and 100", "1e99999999999999999999": "the exponent must be between -100 and 100",
		strings.Repeat("1", 65): "65 characters, the limit is 64", strings.Repeat("x", 1<<20): "1048576 characters, the limit is 64",
		"": "quantities must match", "1e5x": "quantities must match", "2MI": "quantities must match",
	} {
		costtest.Check(t, costtest.Limit{Bytes: 1 << 20}, func() {
			_, err := quantity.Parse(text)
			require.ErrorContains(t, err, want)
		})
	}
	for _, text := range []string{"0", "2Mi", "1Gi", "100m", "1e3", "1E", "-1.5e-3", "1e100", "9223372036854775807"} {
		got, err := quantity.Parse(text)
		require.NoError(t, err)
		want := resource.MustParse(text)
		require.Zero(t, got.Cmp(want), text)
	}
}

// Any text is parsed in little time, and an accepted quantity equals the result of package resource.
func FuzzParse(f *testing.F) {
	for _, text := range []string{"1e-2000000000", "1.5Gi", "-0e100", "00000.1E-99", "1e5i", "1ee5", ".e9", "+1e+0000000000000000100"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		costtest.Check(t, costtest.Limit{Bytes: 1 << 20}, func() {
			q, err := quantity.Parse(text)
			if err != nil {
				return
			}
			want, err := resource.ParseQuantity(text)
			require.NoError(t, err)
			require.Zero(t, q.Cmp(want))
		})
	})
}
