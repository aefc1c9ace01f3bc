// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package kubeletconfig

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/seed81659283/nodeagent/cgroups/cpus"
	"github.com/seed81659283/nodeagent/cgroups/podtree"
	"github.com/seed81659283/nodeagent/cgroups/topology"
	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/cri/logs"
	"github.com/seed81659283/nodeagent/device"
	"github.com/seed81659283/nodeagent/eviction"
	"github.com/seed81659283/nodeagent/gc"
	"github.com/seed81659283/nodeagent/internal/quantity"
	"github.com/seed81659283/nodeagent/lifecycle/podspec"
	"github.com/seed81659283/nodeagent/nodeapi/auth"
	"github.com/seed81659283/nodeagent/nodestatus"
	"github.com/seed81659283/nodeagent/shutdown"
)

// EvictionRules returns the eviction thresholds and grace periods. One threshold limits the memory of all pods together, as the kubelet does by
// default (enforceNodeAllocatable). Call SetDefaults first.
func (c *Configuration) EvictionRules() (eviction.Rules, error) {
	thresholds, err := eviction.ParseThresholds(eviction.Config{
		Hard: c.EvictionHard, Soft: c.EvictionSoft, SoftGracePeriod: c.EvictionSoftGracePeriod, MinimumReclaim: c.EvictionMinimumReclaim,
		MergeDefaults: *c.MergeDefaultEvictionSettings, EnforcePods: true,
	})
	return eviction.Rules{
		Thresholds: thresholds, TransitionPeriod: c.EvictionPressureTransitionPeriod.Duration,
		MaxGracePeriod: time.Duration(c.EvictionMaxPodGracePeriod) * time.Second,
	}, err
}

// NodeStatus returns the configured values for the Node object, such as labels, taints and addresses. Call SetDefaults and Validate first.
func (d *Documents) NodeStatus() nodestatus.Config {
	k, n := &d.Kubelet, &d.Node
	reserved, _ := k.Reserved() // validated
	c := nodestatus.Config{
		Name: n.NodeName, NodeIPs: n.NodeIPs, Labels: n.NodeLabels, Taints: k.RegisterWithTaints, ProviderID: k.ProviderID,
		ExternalCloudProvider: n.ExternalCloudProvider,
		MaxPods:               int(k.MaxPods), PodsPerCore: int(k.PodsPerCore), Reserved: reserved, DeclaredFeatures: nodestatus.DeclaredFeatures(),
	}
	if *k.EnableServer {
		c.Port = k.Port
		c.DeclaredFeatures = append(c.DeclaredFeatures, "ExtendWebSocketsToKubelet") // the API server passes WebSockets through
	}
	return c
}

// AuthOptions returns the options for authentication and authorization of clients of the node's API. The caller adds the
// certificate authorities, and the clients for TokenReview and SubjectAccessReview.
func (d *Documents) AuthOptions() auth.Options {
	k := &d.Kubelet
	return auth.Options{
		NodeName: d.Node.NodeName, Anonymous: *k.Authentication.Anonymous.Enabled, AlwaysAllow: k.Authorization.Mode == AlwaysAllow,
		TokenTTL: k.Authentication.Webhook.CacheTTL.Duration, AllowTTL: k.Authorization.Webhook.CacheAuthorizedTTL.Duration,
		DenyTTL: k.Authorization.Webhook.CacheUnauthorizedTTL.Duration,
	}
}

// Reserved returns the amount of each resource that pods cannot use. It consists of systemReserved, kubeReserved and the
// thresholds in evictionHard, with the default thresholds if mergeDefaultEvictionSettings is true. The CPUs in reservedSystemCPUs replace the CPU in
// systemReserved and kubeReserved.
func (c *Configuration) Reserved() (r podtree.Reserved, err error) {
	var systemErr, kubeErr error
	r.System, systemErr = parseReserved("systemReserved", c.SystemReserved)
	r.Kube, kubeErr = parseReserved("kubeReserved", c.KubeReserved)
	reserved, cpuErr := c.reservedCPUs()
	if err := errors.Join(systemErr, kubeErr, cpuErr); err != nil {
		return r, err
	}
	if !reserved.IsEmpty() {
		delete(r.Kube, corev1.ResourceCPU)
		if r.System == nil {
			r.System = corev1.ResourceList{}
		}
		r.System[corev1.ResourceCPU] = *resource.NewQuantity(int64(reserved.Len()), resource.DecimalSI)
	}
	for signal, reserve := range map[eviction.Signal]*podtree.EvictionReserve{
		eviction.MemoryAvailable: &r.MemoryAvailable, eviction.NodeFSAvailable: &r.NodeFSAvailable,
	} {
		text := c.EvictionHard[string(signal)]
		if text == "" && c.MergeDefaultEvictionSettings != nil && *c.MergeDefaultEvictionSettings {
			text = eviction.DefaultHard()[string(signal)]
		}
		if text == "" {
			continue
		}
		if *reserve, err = parseReserve(text); err != nil {
			return r, fmt.Errorf("evictionHard[%q]: %w", signal, err)
		}
	}
	return r, nil
}

// parseReserve parses a threshold of evictionHard, such as 100Mi or 10%. Pods cannot request this part of the capacity.
func parseReserve(text string) (podtree.EvictionReserve, error) {
	amount, err := eviction.ParseAmount(text)
	if err != nil || amount.Absolute == 0 {
		return podtree.EvictionReserve{Fraction: amount.Fraction}, err
	}
	q, err := quantity.Parse(amount.String()) // rounded up to a whole number
	return podtree.EvictionReserve{Quantity: q}, err
}

func parseReserved(field string, amounts map[string]string) (corev1.ResourceList, error) {
	var list corev1.ResourceList
	for _, name := range slices.Sorted(maps.Keys(amounts)) {
		if reservable := []string{"cpu", "memory", "ephemeral-storage", "pid"}; !slices.Contains(reservable, name) {
			return nil, fmt.Errorf("%s[%q]: %q: the resource cannot be reserved", field, name, shortenText([]byte(amounts[name])))
		}
		amount, err := quantity.Parse(amounts[name])
		if err == nil && amount.Sign() < 0 {
			err = errors.New("must not be negative")
		}
		if err != nil {
			return nil, fmt.Errorf("%s[%q]: %q: %w", field, name, shortenText([]byte(amounts[name])), err)
		}
		if list == nil {
			list = corev1.ResourceList{}
		}
		list[corev1.ResourceName(name)] = amount
	}
	return list, nil
}

// LimitPods sets the limits of the pods and the reserved resources in o, the options of the cgroups of pods. allocatable are the resources of the node
// for pods. Call SetDefaults and Validate first.
func (c *Configuration) LimitPods(o *podtree.Options, allocatable corev1.ResourceList) {
	reserved, _ := c.Reserved()                                                 // validated
	o.Reserved = podtree.Reserved{System: reserved.System, Kube: reserved.Kube} // pods may use the memory that evictionHard keeps free
	o.Node.PodPidsLimit, o.Node.ThrottlingFactor = *c.PodPidsLimit, c.MemoryThrottlingFactor
	o.Node.MemoryAllocatable = allocatable.Memory().Value()
}

// VolumePeriod returns the time between two measurements of a volume. With the default volumeStatsAggPeriod and eviction thresholds it is 10 s,
// because a pod may fill a disk in less than a minute. measured is false if volumes are not measured. Call SetDefaults first.
func (c *Configuration) VolumePeriod() (period time.Duration, measured bool) {
	period = c.VolumeStatsAggPeriod.Duration
	if rules, _ := c.EvictionRules(); period == defaultVolumePeriod && len(rules.Thresholds) > 0 {
		period = 10 * time.Second
	}
	return max(period, 0), period > 0
}

// SetPodCIDR passes podCIDR, at most one range of each IP family separated by a comma, to runtime, as the kubelet does at its start. It does nothing
// if podCIDR is empty or runtime is no [cri.PodCIDRSetter]. It logs an error and the agent continues, because the API server may assign the ranges.
func (c *Configuration) SetPodCIDR(ctx context.Context, runtime cri.Runtime, logger *slog.Logger) {
	setter, ok := runtime.(cri.PodCIDRSetter)
	if c.PodCIDR == "" || !ok {
		return
	}
	var ranges []netip.Prefix
	for text := range strings.SplitSeq(c.PodCIDR, ",") {
		prefix, err := netip.ParsePrefix(text)
		if err != nil {
			logger.Error("podCIDR is not passed to the container runtime", "podCIDR", c.PodCIDR, "error", err)
			return
		}
		ranges = append(ranges, prefix)
	}
	if err := setter.SetPodCIDRs(ctx, ranges); err != nil {
		logger.Error("podCIDR", "podCIDR", c.PodCIDR, "error", err)
	}
}

// DNS returns the IP addresses in the field clusterDNS.
func (c *Configuration) DNS() ([]netip.Addr, error) {
	var servers []netip.Addr
	for i, text := range c.ClusterDNS {
		server, err := netip.ParseAddr(text)
		if err != nil {
			return nil, fmt.Errorf("clusterDNS[%d]: %w", i, err)
		}
		servers = append(servers, server)
	}
	return servers, nil
}

// LogPolicy returns the size limits of container logs.
func (c *Configuration) LogPolicy() (logs.Policy, error) {
	size, err := quantity.Parse(c.ContainerLogMaxSize)
	if err != nil {
		return logs.Policy{}, fmt.Errorf("containerLogMaxSize: %q: %w", shortenText([]byte(c.ContainerLogMaxSize)), err)
	}
	return logs.Policy{MaxSize: size.Value(), MaxFiles: int(*c.ContainerLogMaxFiles)}, nil
}

// ImagePolicy returns the policy of image garbage collection: disk usage thresholds, and the minimum and maximum age of an unused
// image.
func (c *Configuration) ImagePolicy() gc.ImagePolicy {
	p := gc.DefaultImagePolicy()
	p.HighThresholdPercent, p.LowThresholdPercent = int(*c.ImageGCHighThresholdPercent), int(*c.ImageGCLowThresholdPercent)
	p.MinAge, p.MaxAge = c.ImageMinimumGCAge.Duration, c.ImageMaximumGCAge.Duration
	return p
}

// ShutdownPeriods returns the grace periods for a shutdown of the node, one for each range of pod priorities. If there are
// none, shutdowns are not delayed.
func (c *Configuration) ShutdownPeriods() ([]shutdown.Period, error) {
	total, critical := c.ShutdownGracePeriod.Duration, c.ShutdownGracePeriodCriticalPods.Duration
	switch {
	case len(c.ShutdownGracePeriodByPodPriority) > 0 && total != 0:
		return nil, fmt.Errorf("shutdownGracePeriodByPodPriority and shutdownGracePeriod: %d periods and %s are both set", len(c.ShutdownGracePeriodByPodPriority), total)
	case total < 0 || critical < 0 || critical > total:
		return nil, fmt.Errorf("shutdownGracePeriodCriticalPods: %s must be between 0 and shutdownGracePeriod, which is %s", critical, total)
	case total%time.Second != 0 || critical%time.Second != 0:
		return nil, fmt.Errorf("shutdownGracePeriod: %s and %s must be whole seconds", total, critical)
	}
	periods := shutdown.Periods(total, critical)
	for i, g := range c.ShutdownGracePeriodByPodPriority {
		same := func(other ShutdownGracePeriodByPodPriority) bool { return other.Priority == g.Priority }
		if g.ShutdownGracePeriodSeconds < 0 || slices.ContainsFunc(c.ShutdownGracePeriodByPodPriority[:i], same) {
			return nil, fmt.Errorf("shutdownGracePeriodByPodPriority[%d]: %d s for priority %d must not be negative, nor there twice", i, g.ShutdownGracePeriodSeconds, g.Priority)
		}
		periods = append(periods, shutdown.Period{Priority: g.Priority, GracePeriod: time.Duration(g.ShutdownGracePeriodSeconds) * time.Second})
	}
	return periods, nil
}

// Topology returns the policy, options and scope of the topology manager, without the NUMA nodes of the machine. Options are checked by device.New.
func (c *Configuration) Topology() (t device.Topology, err error) {
	if t.Policy, err = device.ParsePolicy(cmp.Or(c.TopologyManagerPolicy, device.None.String())); err != nil {
		err = fmt.Errorf("topologyManagerPolicy: %w", err)
	}
	if scope := cmp.Or(c.TopologyManagerScope, "container"); scope != "container" && scope != "pod" {
		err = errors.Join(err, fmt.Errorf("topologyManagerScope: %q is neither container nor pod", scope))
	}
	t.PodScope, t.Options, t.PodLevel = c.TopologyManagerScope == "pod", c.TopologyManagerPolicyOptions, c.hasPodLevelManagers()
	return t, err
}

// reservedCPUs returns the CPUs in reservedSystemCPUs.
func (c *Configuration) reservedCPUs() (topology.CPUSet, error) {
	set, err := topology.ParseCPUSet(c.ReservedSystemCPUs)
	if err != nil {
		err = fmt.Errorf("reservedSystemCPUs: %q: %w", shortenText([]byte(c.ReservedSystemCPUs)), err)
	}
	return set, err
}

// CPUManager returns the configuration of exclusive CPUs. Whether it suits the machine is checked by cpus.NewPolicy.
func (c *Configuration) CPUManager() (config cpus.Config, err error) {
	if policies := []string{"", cpus.PolicyNone, cpus.PolicyStatic}; !slices.Contains(policies, c.CPUManagerPolicy) {
		return config, fmt.Errorf("cpuManagerPolicy: unknown policy: %q, want none or static", shortenText([]byte(c.CPUManagerPolicy)))
	}
	reserved, err := c.Reserved()
	if err != nil {
		return config, err
	}
	aligned, err := c.Topology()
	if err != nil {
		return config, err
	}
	for _, list := range []corev1.ResourceList{reserved.System, reserved.Kube} {
		config.ReservedMillis += list.Cpu().MilliValue()
	}
	config.ReservedCPUs, _ = c.reservedCPUs() // Reserved has checked it
	config.Policy, config.Options, config.Topology = c.CPUManagerPolicy, c.CPUManagerPolicyOptions, aligned.Policy
	config.Gates = cpus.Gates{AlphaOptions: isGateOn(findGate("CPUManagerPolicyAlphaOptions"), c.FeatureGates), PodLevel: c.hasPodLevelManagers()}
	return config, nil
}

// hasPodLevelManagers reports whether pods with pod-level resources may have exclusive CPUs and memory of their own.
func (c *Configuration) hasPodLevelManagers() bool {
	return isGateOn(findGate("PodLevelResourceManagers"), c.FeatureGates)
}

// ExclusiveResizes reports whether the gates InPlacePodVerticalScalingExclusiveCPUs and InPlacePodVerticalScalingExclusiveMemory are on, for the options of
// package device/placement.
func (c *Configuration) ExclusiveResizes() (cpus, memory bool) {
	isOn := func(gate string) bool { return isGateOn(findGate(gate), c.FeatureGates) }
	return isOn("InPlacePodVerticalScalingExclusiveCPUs"), isOn("InPlacePodVerticalScalingExclusiveMemory")
}

// RuntimeCgroupDriver returns the cgroup driver that the container runtime reports. For a runtime without this call, it is the field cgroupDriver,
// in which every value but systemd means cgroupfs. Source: getCgroupDriverFromCRI in cmd/kubelet/app/server.go.
func (c *Configuration) RuntimeCgroupDriver(ctx context.Context, runtime cri.StatusReporter) (cri.CgroupDriver, error) {
	reported, err := runtime.CgroupDriver(ctx)
	if !errors.Is(err, errors.ErrUnsupported) {
		return reported, err
	}
	if c.CgroupDriver == cri.CgroupDriverSystemd.String() {
		return cri.CgroupDriverSystemd, nil
	}
	return cri.CgroupDriverCgroupfs, nil
}

// HostDNS returns a function that reads the resolv.conf file of the host for a pod. Its nil result means that the runtime chooses the file, because
// the path is the default one and does not exist. The function is nil for an empty path: pods get no name server of the host. Call it after
// SetDefaults.
func (c *Configuration) HostDNS() func() (*cri.DNSConfig, error) {
	path := *c.ResolvConf
	if path == "" {
		return nil
	}
	return func() (*cri.DNSConfig, error) {
		dns, err := podspec.ReadResolvConf(path)
		switch {
		case errors.Is(err, fs.ErrNotExist) && path == defaultResolvConf:
			return nil, nil //nolint:nilnil // documented
		case err != nil:
			return nil, fmt.Errorf("resolvConf: %w", err)
		}
		return dns, nil
	}
}

// APIAddresses returns the addresses with ports on which the node's HTTP API listens. The second one, if there is one, is for clients that are not
// authenticated. Call SetDefaults first.
func (c *Configuration) APIAddresses() []string {
	addresses := []string{net.JoinHostPort(c.Address, strconv.Itoa(int(c.Port)))}
	if c.ReadOnlyPort != 0 {
		addresses = append(addresses, net.JoinHostPort(c.Address, strconv.Itoa(int(c.ReadOnlyPort))))
	}
	return addresses
}

// HealthzAddress returns the address with port of the page healthz, or "" if no port serves it. Call SetDefaults first.
func (c *Configuration) HealthzAddress() string {
	if *c.HealthzPort == 0 {
		return ""
	}
	return net.JoinHostPort(c.HealthzBindAddress, strconv.Itoa(int(*c.HealthzPort)))
}
