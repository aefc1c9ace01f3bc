// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package promtest_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed81659283/nodeagent/internal/promtest"
)

const page = `# HELP took_seconds Time.
# TYPE took_seconds histogram
took_seconds_bucket{op="a",le="0.5"} 1
took_seconds_bucket{op="a",le="2"} 1
took_seconds_bucket{op="a",le="+Inf"} 1
took_seconds_sum{op="a"} 0.1
took_seconds_count{op="a"} 1
# TYPE pause_seconds summary
pause_seconds{quantile="0.5"} 1
pause_seconds_sum 1
pause_seconds_count 1
# TYPE seen counter
seen{a="1"} 1
seen{b="1"} 1
`

func TestParse(t *testing.T) {
	families, err := promtest.Parse(strings.NewReader(page))
	require.NoError(t, err)
	var list []string
	for _, family := range families {
		list = append(list, family.String())
	}
	assert.Equal(t, []string{
		"pause_seconds summary {} 0.5",
		"seen counter {a,b}",
		"took_seconds histogram {op} 0.5 2",
	}, list)

	again, err := promtest.ParseList("# comment\n\n" + strings.Join(list, "\n"))
	require.NoError(t, err)
	require.Len(t, again, 3)
	for i, family := range again {
		assert.Equal(t, list[i], family.String())
	}
}

func TestParseListRejectsInvalidLines(t *testing.T) {
	for _, line := range []string{"name", "name gauge", "name gauge {a", "name histogram {} 1 x"} {
		_, err := promtest.ParseList("\n" + line)
		assert.ErrorContains(t, err, "line 2", line)
	}
}

// The families of all pages of the kubelet are known and sorted by name.
func TestKubeletPages(t *testing.T) {
	for _, page := range []string{
		promtest.PageMetrics, promtest.PageProbes, promtest.PageResource, promtest.PageCadvisor, promtest.PageSLIs,
	} {
		families, err := promtest.Kubelet(page)
		require.NoError(t, err)
		require.NotEmpty(t, families)
		for i := 1; i < len(families); i++ {
			assert.Less(t, families[i-1].Name, families[i].Name, page)
		}
	}
	_, err := promtest.Kubelet("nothing")
	assert.ErrorContains(t, err, `"nothing"`)
}

func TestCompare(t *testing.T) {
	const kubelet = "a counter {x}\nb gauge {}\nc_one gauge {}\nc_two gauge {}\nh histogram {} 1 2\n"
	for name, c := range map[string]struct {
		ours, verdicts string
		want           []string
	}{
		"true": {
			ours:     "a counter {x}\nh histogram {} 1 2\nb gauge {y}\nour_own gauge {}\nc_one counter {}\nc_three gauge {}\n",
			verdicts: "same a\nsame h\nlabels b: one more\nvaries c_*: by version\n",
		},
		"exact names and patterns": {
			ours:     kubelet,
			verdicts: "absent c_*: none here\nsame c_*x: is no pattern\nsame a\nsame b\nsame h\nsame c_one\nsame c_two",
			want: []string{
				"c_*: there is a verdict, and the kubelet has no such family",
				"c_*x: there is a verdict, and the kubelet has no such family",
			},
		},
		"wrong verdicts": {
			ours:     "a counter {y}\nb gauge {}\nc_one gauge {}\nother gauge {}\n",
			verdicts: "same a\nlabels b: they differ\nabsent c_one: none\nsame c_two\nsame h\nsame nothing",
			want: []string{
				"a: it differs:\n\tkubelet a counter {x}\n\tours    a counter {y}",
				"b: its labels are said to differ (they differ), and do not",
				"c_one: it is said to be absent (none), and is not",
				"c_two: it is said to be the same, and is absent",
				"h: it is said to be the same, and is absent",
				"nothing: there is a verdict, and the kubelet has no such family",
				"other: we have it, the kubelet does not, and its name does not say so",
			},
		},
		"no verdicts": {
			ours: "h histogram {} 1",
			want: []string{
				"a: the kubelet has it, and no verdict is about it",
				"b: the kubelet has it, and no verdict is about it",
				"c_one: the kubelet has it, and no verdict is about it",
				"c_two: the kubelet has it, and no verdict is about it",
				"h: the kubelet has it, and no verdict is about it",
			},
		},
		"invalid verdicts": {
			ours:     "h histogram {} 1",
			verdicts: "similar a\nabsent b\nsame c_*\nsame c_*\nsame\nabsent a: none\nabsent b: none\nsame h",
			want: []string{
				"c_one: it is said to be the same, and is absent",
				"c_two: it is said to be the same, and is absent",
				"h: it differs:\n\tkubelet h histogram {} 1 2\n\tours    h histogram {} 1",
				`line 1: "similar a": want same, absent, labels or varies, and a name`,
				`line 2: "absent b": want a reason`,
				`line 4: "same c_*": there is a verdict about it already`,
				`line 5: "same": want same, absent, labels or varies, and a name`,
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			theirs, err := promtest.ParseList(kubelet)
			require.NoError(t, err)
			ours, err := promtest.ParseList(c.ours)
			require.NoError(t, err)
			assert.Equal(t, c.want, promtest.Compare(theirs, ours, c.verdicts, "our_"))
		})
	}
}

func FuzzParse(f *testing.F) {
	f.Add(page)
	f.Fuzz(func(t *testing.T, text string) {
		families, err := promtest.Parse(strings.NewReader(text))
		if err != nil {
			return
		}
		var list strings.Builder
		for _, family := range families {
			fmt.Fprintln(&list, family)
		}
		again, err := promtest.ParseList(list.String())
		require.NoError(t, err)
		require.Len(t, again, len(families))
	})
}

func ExampleCompare() {
	kubelet, _ := promtest.ParseList("kubelet_running_pods gauge {}\nkubelet_pod_worker_duration_seconds histogram {operation_type} 0.1 1")
	ours, _ := promtest.Parse(strings.NewReader("# TYPE kubelet_running_pods counter\nkubelet_running_pods 3\n"))
	for _, problem := range promtest.Compare(kubelet, ours, "same kubelet_running_pods") {
		fmt.Println(problem)
	}
	// Output:
	// kubelet_pod_worker_duration_seconds: the kubelet has it, and no verdict is about it
	// kubelet_running_pods: it differs:
	// 	kubelet kubelet_running_pods gauge {}
	// 	ours    kubelet_running_pods counter {}
}
