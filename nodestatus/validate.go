// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package nodestatus

import (
	"errors"
	"fmt"
	"net/netip"
	"regexp"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/seed81659283/nodeagent/nodestatus/machine"
)

// NodeName returns the node name for a host name. Like the kubelet, it removes surrounding spaces and converts to lower
// case.
func NodeName(hostname string) (string, error) {
	name := strings.ToLower(strings.TrimSpace(hostname))
	if name == "" {
		return "", fmt.Errorf("host name %.80q: is empty, so the node needs a name", hostname)
	}
	return name, nil
}

// ParseNodeIPs parses node IPs in the format of the kubelet's flag --node-ip: one address, or an IPv4 and an IPv6 address
// separated by a comma. An empty string yields nil. An address that a node cannot have is an error.
func ParseNodeIPs(s string) (ips []netip.Addr, err error) {
	if s == "" {
		return nil, nil
	}
	for one := range strings.SplitSeq(s, ",") {
		ip, err := netip.ParseAddr(strings.TrimSpace(one))
		if err != nil || ip.Zone() != "" {
			return nil, fmt.Errorf("node IP %.80q: is not an IP address", one)
		}
		ips = append(ips, ip.Unmap())
	}
	return ips, validateNodeIPs(ips)
}

func validateNodeIPs(ips []netip.Addr) error {
	switch {
	case len(ips) > 2 || len(ips) == 2 && ips[0].Unmap().Is4() == ips[1].Unmap().Is4():
		return fmt.Errorf("node IPs %v: must be a single IP or a dual-stack pair of IPs", ips)
	case len(ips) == 2 && (ips[0].IsUnspecified() || ips[1].IsUnspecified()):
		return fmt.Errorf("node IPs %v: 0.0.0.0 or :: cannot be one of a dual-stack pair", ips)
	}
	for _, ip := range ips {
		if !ip.IsValid() || ip.Zone() != "" {
			return fmt.Errorf("node IP %q: is not an IP address", ip)
		}
		if err := checkUsableIP(ip.Unmap()); err != nil && !ip.IsUnspecified() {
			return err
		}
	}
	return nil
}

// featureName is the format of feature names that the API server accepts.
var featureName = regexp.MustCompile(`^[A-Z][a-zA-Z0-9]*(/[a-zA-Z][a-zA-Z0-9]*)*$`)

// Validate returns the joined errors of all invalid fields, with their names and values, or nil. A value is also invalid if the
// API server would reject every registration with it.
func (c *Config) Validate() error {
	var errs []error
	if why := validation.IsDNS1123Subdomain(c.Name); len(why) > 0 {
		errs = append(errs, fmt.Errorf("node name %.300q: %s", c.Name, strings.Join(why, "; ")))
	}
	if _, overridden := c.Labels[corev1.LabelHostname]; !overridden {
		if why := validation.IsValidLabelValue(c.hostnameOrName()); len(why) > 0 {
			errs = append(errs, fmt.Errorf("host name %.300q, which is the label %s: %s", c.hostnameOrName(), corev1.LabelHostname, strings.Join(why, "; ")))
		}
	}
	for _, limit := range []struct {
		name        string
		value, most int64
	}{{"maxPods", int64(c.MaxPods), 1 << 31}, {"podsPerCore", int64(c.PodsPerCore), 1 << 31}, {"port", int64(c.Port), 65535}} {
		if limit.value < 0 || limit.value > limit.most {
			errs = append(errs, fmt.Errorf("%s %d: must be between 0 and %d", limit.name, limit.value, limit.most))
		}
	}
	if c.MaxImages != nil && *c.MaxImages < -1 {
		errs = append(errs, fmt.Errorf("nodeStatusMaxImages %d: must be -1 or more", *c.MaxImages))
	}
	for _, name := range c.DeclaredFeatures {
		if len(name) > validation.DNS1123SubdomainMaxLength || !featureName.MatchString(name) {
			errs = append(errs, fmt.Errorf("declared feature %.300q: must be like MyFeature or MyFeature/mySubFeature", name))
		}
	}
	return errors.Join(append(errs, validateLabels(c.Labels), validateTaints(c.Taints), validateNodeIPs(c.NodeIPs))...)
}

// ValidateReserved returns an error for each resource of which more is reserved than the machine has. The errors are joined.
// A resource whose amount is unknown is not checked.
func (c *Config) ValidateReserved(info machine.Info) error {
	return c.Reserved.Validate(machineCapacity(&info))
}
