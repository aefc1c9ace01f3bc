// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package changeover

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"

	"github.com/seed81659283/nodeagent/apiserver/cert"
	"github.com/seed81659283/nodeagent/cgroups/cpus"
	"github.com/seed81659283/nodeagent/cgroups/driver"
	"github.com/seed81659283/nodeagent/cgroups/numa"
	"github.com/seed81659283/nodeagent/cgroups/podtree"
	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/internal/kubeapi"
	"github.com/seed81659283/nodeagent/internal/plainfile"
	"github.com/seed81659283/nodeagent/internal/volume/record"
	"github.com/seed81659283/nodeagent/lifecycle/source"
	"github.com/seed81659283/nodeagent/qos"
	"github.com/seed81659283/nodeagent/volume"
	"github.com/seed81659283/nodeagent/volume/intree"
)

// Limits of sources.
const (
	maxCPUState  = 16 << 20 // bytes of the state of the CPU manager
	maxPods      = 64 << 20 // bytes of the page /pods
	podsTimeout  = 10 * time.Second
	maxOwner     = 100  // bytes of the file with the owner
	listPageSize = 5000 // pods of a node that are read
)

// listPods returns the pods of all sources: of the API server, or else of the kubelet's page /pods, and of static manifests.
func (r *reader) listPods(ctx context.Context) (pods []*corev1.Pod) {
	complete := true
	if r.config.InCluster() {
		list := r.options.APIPods
		if list == nil {
			list = r.listAPIPods
		}
		found, err := list(ctx)
		if err != nil {
			r.addUnread("pods of the API server", err)
			found, err = r.listKubeletPods(ctx)
			complete = err == nil
			r.addUnread("pods of the kubelet", err)
		}
		pods = append(pods, slices.DeleteFunc(found, qos.IsMirror)...)
	}
	for _, update := range r.readManifests(ctx) {
		complete = complete && !update.Incomplete
		for _, err := range update.Errs {
			if !errors.Is(err, os.ErrNotExist) { // a missing directory has no pods
				r.addUnread("static pods", err)
			}
		}
		for _, pod := range update.Pods {
			if !slices.ContainsFunc(pods, func(p *corev1.Pod) bool { return p.UID == pod.UID }) { // the page /pods has them, too
				pods = append(pods, pod)
			}
		}
	}
	r.node.AllListed = complete
	return pods
}

// listAPIPods lists the pods of the node with the kubelet's kubeconfig.
func (r *reader) listAPIPods(ctx context.Context) ([]*corev1.Pod, error) {
	client, err := r.dialAPI()
	if err != nil {
		return nil, err
	}
	defer client.CloseConnections()
	page, err := kubeapi.In(client, kubeapi.Pods, "").List(ctx, metav1.ListOptions{
		FieldSelector: fields.OneTermEqualSelector("spec.nodeName", r.config.Node.NodeName).String(), Limit: listPageSize,
	})
	if err == nil && page.Continue != "" {
		err = fmt.Errorf("the node has more than %d pods", listPageSize)
	}
	return page.Items, err
}

// dialAPI returns a client of the API server with the kubelet's kubeconfig. The caller closes its connections.
func (r *reader) dialAPI() (*kubeapi.Client, error) {
	config, err := cert.LoadKubeconfig(r.config.Node.Kubeconfig)
	if err != nil {
		return nil, err
	}
	return kubeapi.New(config, kubeapi.Options{})
}

// listKubeletPods reads the page /pods of the kubelet on readOnlyPort, which needs no credentials.
func (r *reader) listKubeletPods(ctx context.Context) ([]*corev1.Pod, error) {
	k := &r.config.Kubelet
	if k.ReadOnlyPort == 0 {
		return nil, errors.New("readOnlyPort is not set")
	}
	ctx, cancel := context.WithTimeout(ctx, podsTimeout)
	defer cancel()
	address := net.JoinHostPort(localAddress(k.Address), strconv.Itoa(int(k.ReadOnlyPort)))
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+"/pods", http.NoBody)
	if err != nil {
		return nil, err
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, CheckRedirect: func(*http.Request, []*http.Request) error {
		return http.ErrUseLastResponse
	}}
	response, err := client.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("GET %s: status %d", request.URL, response.StatusCode)
	}
	var list corev1.PodList
	if err := json.NewDecoder(io.LimitReader(response.Body, maxPods)).Decode(&list); err != nil {
		return nil, fmt.Errorf("GET %s: %w", request.URL, err)
	}
	var pods []*corev1.Pod
	for i := range list.Items {
		pods = append(pods, &list.Items[i])
	}
	return pods, nil
}

// readManifests reads the static pods once.
func (r *reader) readManifests(ctx context.Context) (updates []source.Update) {
	k, n := &r.config.Kubelet, &r.config.Node
	if k.StaticPodPath != "" {
		dir := source.NewDir(k.StaticPodPath, source.DirOptions{
			NodeName: n.NodeName, AllowObjects: n.ObjectsDir != "", AllowTokens: n.Kubeconfig != "", StableFor: time.Nanosecond, MissingIsEmpty: true,
		})
		updates = append(updates, dir.Scan(time.Now()))
	}
	if k.StaticPodURL != "" {
		page := source.NewHTTP(k.StaticPodURL, source.HTTPOptions{NodeName: n.NodeName, AllowObjects: n.ObjectsDir != "", AllowTokens: n.Kubeconfig != ""})
		updates = append(updates, page.Fetch(ctx, time.Now()))
	}
	return updates
}

// findVolumes returns the directories of volumes that only the pod spec describes, and the errors of unreadable ones, by pod UID.
func (r *reader) findVolumes() (volumes map[string][]string, damaged map[string]error) {
	volumes = map[string][]string{}
	named := []string{volume.EmptyDir, volume.ConfigMap, volume.Secret, volume.DownwardAPI, volume.Projected}
	all, damaged, err := record.Find(filepath.Join(r.config.Node.RootDir, "pods"), func(name string) bool { return slices.Contains(named, name) })
	r.addUnread("volumes", err)
	for _, found := range all {
		volumes[found.UID] = found.Others
	}
	return volumes, damaged
}

// openCgroups opens the cgroups of this machine as the agent does. The caller calls closeTree.
func (r *reader) openCgroups(ctx context.Context) (tree *podtree.Tree, closeTree func(), err error) {
	k := &r.config.Kubelet
	names, err := k.RuntimeCgroupDriver(ctx, r.options.Runtime)
	if err != nil {
		return nil, nil, err
	}
	host, err := podtree.HostOptions(os.DirFS("/proc"))
	if err != nil {
		return nil, nil, err
	}
	cgroups, err := driver.Open(ctx, driver.Options{Root: k.CgroupRoot, Systemd: names == cri.CgroupDriverSystemd})
	if err != nil {
		return nil, nil, fmt.Errorf("cgroupRoot: %w", err)
	}
	if tree, err = podtree.New(cgroups, nil, host); err != nil {
		return nil, nil, errors.Join(err, cgroups.Close())
	}
	return tree, func() { _ = cgroups.Close() }, nil
}

// readOwner returns the mark of the agent that has used the directory of pods before, or a mark that no container has.
func readOwner(pods string) (string, error) {
	text, err := plainfile.Read(filepath.Join(pods, ".owner"), maxOwner)
	if errors.Is(err, os.ErrNotExist) {
		return "none", nil
	}
	return strings.TrimSpace(string(text)), err
}

// checkCPUs returns an error if the state file of the kubelet's CPU manager exists and cannot be read. The agent takes over the exclusive CPUs in it.
func checkCPUs(path string) error {
	text, err := plainfile.Read(path, maxCPUState)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err == nil {
		_, _, err = cpus.DecodeCheckpoint(text)
	}
	return err
}

// checkMemory returns an error if the state file of the kubelet's memory manager exists and cannot be read. The agent takes over the memory in it.
func checkMemory(path string) error {
	_, err := numa.ReadCheckpoint(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	return err
}

// volumePlugins returns the volume plugins of an agent, for checks of pods. Their other methods must not be called. In a cluster they have objects.
func volumePlugins(cluster bool) map[string]volume.Plugin {
	var o intree.Options
	if cluster {
		o = intree.Options{Objects: struct{ intree.Objects }{}, Tokens: struct{ volume.TokenIssuer }{}}
		o.TrustBundles, o.Certificates = struct{ volume.TrustBundleLister }{}, struct{ intree.Certificates }{}
	}
	plugins := intree.Plugins(o)
	plugins[volume.CSI] = struct {
		volume.Plugin
		volume.Stager
	}{}
	return plugins
}
