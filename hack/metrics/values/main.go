// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Command values measures the pods of a kubelet with package usage and reads the kubelet's own pages at the same time. It
// prints for each family of metrics and each number of a summary how far both values differ. It fails if more than a fifth
// of the values of a family differ by more than five percent, unless the family is excepted with a reason. scrape.sh runs it
// beside a kubelet.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/cgroups"
	"github.com/seed81659283/nodeagent/cgroups/driver"
	"github.com/seed81659283/nodeagent/cri/remote"
	"github.com/seed81659283/nodeagent/nodeapi/prom/usage"
	"github.com/seed81659283/nodeagent/nodestatus/machine"
	"github.com/seed81659283/nodeagent/stats"
)

// settings contains the values of the flags.
type settings struct {
	kubelet, endpoint, cgroupRoot, root, logs string
	during                                    time.Duration
}

func main() {
	var s settings
	flag.StringVar(&s.kubelet, "kubelet", "http://127.0.0.1:20255", "URL of the kubelet's read-only port")
	flag.StringVar(&s.endpoint, "endpoint", "", "socket of the runtime, which the kubelet has, too")
	flag.StringVar(&s.cgroupRoot, "cgroup-root", "/", "cgroup that the kubelet's kubepods is in")
	flag.StringVar(&s.root, "root", "/var/lib/kubelet", "directory of the kubelet")
	flag.StringVar(&s.logs, "logs", "/var/log/pods", "directory of the logs of pods")
	flag.DurationVar(&s.during, "for", 30*time.Second, "how long to compare")
	flag.Parse()
	if err := run(context.Background(), s); err != nil {
		fmt.Fprintln(os.Stderr, "values:", err)
		os.Exit(1)
	}
}

// source is a page of this project and the path of the kubelet's counterpart.
type source struct {
	path  string
	ours  func() (io.Reader, error)
	parse func(io.Reader, time.Time) (readings, error)
}

func run(ctx context.Context, s settings) error {
	ctx, cancel := context.WithTimeout(ctx, s.during)
	defer cancel()
	d, err := driver.Open(ctx, driver.Options{})
	if err != nil {
		return err
	}
	sources, measure, err := newSources(ctx, d, s)
	if err != nil {
		return err
	}
	ended := make(chan error, 1)
	go func() { ended <- measure(ctx) }()
	compared := comparison{except: append(exceptions(), exceptionsV1()...)}
	if d.Host().Mode == driver.V2 {
		compared.except = append(exceptions(), exceptionsV2()...)
	}
	for round := 0; ctx.Err() == nil; round++ {
		for _, from := range sources {
			now := time.Now()
			page, err := from.ours()
			if err != nil {
				return err
			}
			read, err := from.parse(page, now)
			if err != nil {
				return fmt.Errorf("our %s: %w", from.path, err)
			}
			compared.addOurs(from.path, read)
			if round%10 != 9 {
				continue
			}
			if read, err = readKubelet(ctx, s.kubelet, from); err != nil && ctx.Err() == nil {
				return err
			}
			read.keepBelow(s.cgroupRoot)
			compared.compareKubelet(from.path, read)
		}
		select {
		case <-ctx.Done():
		case <-time.After(500 * time.Millisecond):
		}
	}
	report, failed := compared.formatReport()
	fmt.Print(report)
	return errors.Join(<-ended, failed)
}

// newSources returns this project's pages for the pods of the kubelet.
func newSources(ctx context.Context, d *driver.Driver, s settings) ([]source, func(context.Context) error, error) {
	client, err := remote.Dial(s.endpoint, remote.Options{})
	if err != nil {
		return nil, nil, err
	}
	below, err := cgroups.NewPath(strings.Trim(s.cgroupRoot, "/"))
	if err != nil {
		return nil, nil, err
	}
	mounted, err := listVolumes(ctx, s)
	if err != nil {
		return nil, nil, err
	}
	collector, err := stats.New(d, client, stats.Options{
		Root: s.root, LogRoot: s.logs, CgroupRoot: below, RuntimePeriod: time.Second, LogPeriod: time.Second, CPUFraction: 1,
		Volumes: func(uid string) []stats.Volume { return mounted[uid] },
	})
	if err != nil {
		return nil, nil, err
	}
	m, err := machine.Read(os.DirFS("/"))
	if err != nil {
		return nil, nil, err
	}
	o := usage.Options{Machine: m, Error: func(page string, err error) { fmt.Fprintf(os.Stderr, "our %s: %v\n", page, err) }}
	resource, err := usage.Resource(collector, o)
	if err != nil {
		return nil, nil, err
	}
	cadvisor, err := usage.Cadvisor(collector, o)
	if err != nil {
		return nil, nil, err
	}
	return []source{
		{"/metrics/resource", served(resource), parsePage},
		{"/metrics/cadvisor", served(cadvisor), parsePage},
		{"/stats/summary", func() (io.Reader, error) {
			all, err := collector.Summary(ctx)
			if err != nil {
				fmt.Fprintln(os.Stderr, "our summary:", err)
			}
			return encode(all)
		}, parseSummary},
	}, collector.Run, nil
}

func served(page http.Handler) func() (io.Reader, error) {
	return func() (io.Reader, error) {
		w := httptest.NewRecorder()
		page.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", nil))
		return w.Body, nil
	}
}

// readKubelet reads a page of the kubelet.
func readKubelet(ctx context.Context, url string, from source) (readings, error) {
	text, err := fetchURL(ctx, url+from.path)
	if err != nil {
		return nil, err
	}
	return from.parse(bytes.NewReader(text), time.Now())
}

// listVolumes returns the volumes of each pod of the kubelet, by pod UID.
func listVolumes(ctx context.Context, s settings) (map[string][]stats.Volume, error) {
	text, err := fetchURL(ctx, s.kubelet+"/pods")
	if err != nil {
		return nil, err
	}
	var pods corev1.PodList
	if err := json.Unmarshal(text, &pods); err != nil {
		return nil, fmt.Errorf("%s/pods: %w", s.kubelet, err)
	}
	all := make(map[string][]stats.Volume)
	for i := range pods.Items {
		all[string(pods.Items[i].UID)] = stats.VolumesOf(s.root, &pods.Items[i])
	}
	return all, nil
}

// fetchURL returns the content of a URL.
func fetchURL(ctx context.Context, url string) ([]byte, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		return nil, err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err == nil && answer.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", url, answer.Status)
	}
	return text, err
}
