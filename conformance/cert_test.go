// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package conformance_test

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	clientgo "k8s.io/client-go/util/certificate"
	"k8s.io/kubernetes/pkg/kubelet/certificate"
	"k8s.io/kubernetes/pkg/kubelet/certificate/bootstrap"

	"github.com/seed81659283/nodeagent/conformance"
	"github.com/seed81659283/nodeagent/internal/certrequest"
)

// Both sides request the same names in a serving certificate, for generated node addresses.
func TestCertTemplates(t *testing.T) { certTemplates.Run(t, flags) }

var certTemplates = conformance.Comparison[[]corev1.NodeAddress, []string]{
	Make: func(c *conformance.Choices) []corev1.NodeAddress { return makeAddresses(c) },
	Kubelet: func(in []corev1.NodeAddress) []string {
		template := certificate.ConformanceTemplate("n1", in)
		if template == nil {
			return nil
		}
		out := append([]string{template.Subject.CommonName}, template.Subject.Organization...)
		out = append(out, template.DNSNames...)
		for _, ip := range template.IPAddresses {
			out = append(out, "IP "+ip.String())
		}
		return out
	},
	Ours: func(in []corev1.NodeAddress) []string {
		template, ok := certrequest.ServingTemplate("n1", in)
		if !ok {
			return nil
		}
		out := append([]string{template.CommonName}, template.Organization...)
		out = append(out, template.DNSNames...)
		for _, ip := range template.IPs {
			out = append(out, "IP "+ip.String())
		}
		return out
	},
	Exceptions: []conformance.Exception[[]corev1.NodeAddress, []string]{{
		Name:   "an address that is written in two ways",
		Reason: "it is one address, but the kubelet requests it twice",
		When: func(in []corev1.NodeAddress) bool {
			for i, a := range in {
				for _, b := range in[:i] {
					if a.Address != b.Address && net.ParseIP(plainIP(a.Address)).Equal(net.ParseIP(plainIP(b.Address))) {
						return true
					}
				}
			}
			return false
		},
		Want: func(_ []corev1.NodeAddress, kubelet []string) (once []string) {
			seen := map[string]bool{}
			for _, s := range kubelet {
				if !seen[s] || !strings.HasPrefix(s, "IP ") {
					once = append(once, s)
				}
				seen[s] = true
			}
			return once
		},
	}},
}

// plainIP returns an address of makeAddresses without leading zeros.
func plainIP(s string) string {
	return strings.ReplaceAll(strings.ReplaceAll(s, "010.", "10."), "00.", "0.")
}

func makeAddresses(c *conformance.Choices) (all []corev1.NodeAddress) {
	for range c.Int(6) {
		all = append(all, corev1.NodeAddress{
			Type: conformance.Pick(c, corev1.NodeInternalIP, corev1.NodeHostName, corev1.NodeExternalIP, corev1.NodeInternalDNS, corev1.NodeExternalDNS, "Other"),
			Address: conformance.Pick(c, "10.0.0.1", "n1", "", "10.0.0.2", "9.1.1.1", "fd00::1", "::ffff:10.0.0.1", "010.0.0.1", "10.0.0.256", "10.0.0",
				"fe80::1%eth0", "::ffff:010.0.0.1", "a.example", "1.2.3.4.5", "fd00:0::1", "0", "::", "0.0.0.0", "00.0.0.0", "1.2.3.", "::1.2.3.4", "x::10.0.0.1"),
		})
	}
	return all
}

// signed has a key and the requested subject.
type signed struct {
	Key  int // index in certKeys
	Name string
	Orgs []string
}

// certKeys are created once, because the results do not depend on the key values.
var certKeys = sync.OnceValue(func() (keys []crypto.Signer) {
	for _, curve := range []elliptic.Curve{elliptic.P256(), elliptic.P256(), elliptic.P384()} {
		key, err := ecdsa.GenerateKey(curve, rand.Reader)
		if err != nil {
			panic(err)
		}
		keys = append(keys, key)
	}
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		panic(err)
	}
	return append(keys, key)
})

// The names of certificate signing requests, by which a restarted agent finds its request.
func TestCertRequestNames(t *testing.T) { certRequestNames.Run(t, flags) }

var certRequestNames = conformance.Comparison[signed, string]{
	Make: func(c *conformance.Choices) (in signed) {
		in.Key, in.Name = c.Int(len(certKeys())), conformance.Pick(c, "system:node:n1", "system:node:", "", "a|b", "a")
		for range c.Int(4) {
			in.Orgs = append(in.Orgs, conformance.Pick(c, "system:nodes", "", "b", "|"))
		}
		return in
	},
	Kubelet: func(in signed) string {
		usages := []certificatesv1.KeyUsage{certificatesv1.UsageDigitalSignature, certificatesv1.UsageClientAuth}
		if _, ok := certKeys()[in.Key].(*rsa.PrivateKey); ok { // as in requestNodeCertificate
			usages = append(usages, certificatesv1.UsageKeyEncipherment)
		}
		name, err := bootstrap.ConformanceName(certKeys()[in.Key].Public(), &pkix.Name{CommonName: in.Name, Organization: in.Orgs}, usages)
		return fmt.Sprint(name, err)
	},
	Ours: func(in signed) string {
		name, err := certrequest.RequestName(certrequest.Template{CommonName: in.Name, Organization: in.Orgs}, certKeys()[in.Key].Public())
		return fmt.Sprint(name, err)
	},
}

// due has a certificate, the template of the next one, and the current time.
type due struct {
	None, Force   bool
	Leaf          *x509.Certificate
	Org, DNS, IPs []string // fields of the template
	Now           time.Time
}

// Both sides replace a certificate at the same time: at once, or after the same fraction of its lifetime.
func TestCertDeadlines(t *testing.T) { certDeadlines.Run(t, flags) }

var certDeadlines = conformance.Comparison[due, string]{
	Make: makeDue,
	Kubelet: func(in due) string {
		template := &x509.CertificateRequest{Subject: pkix.Name{CommonName: "system:node:n1", Organization: in.Org}, DNSNames: in.DNS}
		for _, ip := range in.IPs {
			template.IPAddresses = append(template.IPAddresses, net.ParseIP(ip))
		}
		pair := &tls.Certificate{Leaf: in.Leaf}
		if in.None || in.Now.After(in.Leaf.NotAfter) { // as in getCurrentCertificateOrBootstrap
			pair = nil
		}
		at := clientgo.ConformanceDeadline(pair, template, in.Force || pair == nil, in.Now)
		if at.Equal(in.Now) {
			return "at once"
		}
		// Compute the random number that the kubelet has drawn from its result.
		total := in.Leaf.NotAfter.Sub(in.Leaf.NotBefore)
		drawn := (at.Sub(in.Leaf.NotBefore) - total + time.Duration(0.3*float64(total))).Seconds() / (0.2 * total.Seconds())
		ours := certrequest.RotationDeadline(in.Leaf.NotBefore, in.Leaf.NotAfter, drawn)
		if off := ours.Sub(at).Abs(); drawn < -1e-9 || drawn >= 1 || off > time.Microsecond {
			return fmt.Sprintf("deadline %v implies the random number %v, and differs by %v from ours", at, drawn, off)
		}
		return describeDeadline(certrequest.RotationDeadline(in.Leaf.NotBefore, in.Leaf.NotAfter, 0), in.Now)
	},
	Ours: func(in due) string {
		template := certrequest.Template{CommonName: "system:node:n1", Organization: in.Org, DNSNames: in.DNS, IPs: parsedIPs(in.IPs)}
		state := certrequest.State{Leaf: in.Leaf, IsBootstrap: in.Force, Template: &template}
		if in.None {
			state.Leaf = nil
		}
		action := certrequest.Step(state, in.Now)
		if action.Verb == certrequest.Request && action.Reason != "the certificate must be rotated before it expires" {
			return "at once"
		}
		for end := in.Now.Add(3000 * time.Hour); action.Verb == certrequest.Wait && in.Now.Before(end); {
			if !action.Wake.After(in.Now) {
				return "no pause before the next check"
			}
			if d := certrequest.RotationDeadline(in.Leaf.NotBefore, in.Leaf.NotAfter, 0); d.Sub(in.Now) > time.Minute {
				in.Now = d.Add(-time.Second) // skip the checks without action
			} else {
				in.Now = action.Wake
			}
			action = certrequest.Step(state, in.Now)
		}
		return describeDeadline(in.Now, in.Now)
	},
}

// makeDue returns a certificate of some hours, and a time outside of its first and last second.
func makeDue(c *conformance.Choices) (in due) {
	begin := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	total := time.Duration(1+c.Int(100)) * time.Hour
	in.Leaf = &x509.Certificate{
		Subject:   pkix.Name{CommonName: conformance.Pick(c, "system:node:n1", "system:node:n1", "system:node:n2", "admin")},
		NotBefore: begin, NotAfter: begin.Add(total),
	}
	in.Now = begin.Add(time.Duration(float64(total) * float64(c.Int(256)-20) / 200)).Add(time.Second)
	in.None, in.Force = c.OneIn(16), c.OneIn(16)
	in.Org, in.Leaf.Subject.Organization = subsets(c, "system:nodes", "a", "b")
	in.DNS, in.Leaf.DNSNames = subsets(c, "n1", "n1.example", "a")
	var ips []string
	in.IPs, ips = subsets(c, "10.0.0.1", "fd00::1", "9.0.0.1")
	for _, ip := range ips {
		in.Leaf.IPAddresses = append(in.Leaf.IPAddresses, net.ParseIP(ip))
	}
	return in
}

// subsets returns two sets of names. Most of the first are also in the second.
func subsets(c *conformance.Choices, names ...string) (some, more []string) {
	for _, name := range names {
		switch c.Int(6) {
		case 0, 1:
			some, more = append(some, name), append(more, name)
		case 2, 3:
			more = append(more, name)
		case 4:
			if c.OneIn(4) {
				some = append(some, name)
			}
		}
	}
	return some, more
}

func parsedIPs(ips []string) (all []netip.Addr) {
	for _, ip := range ips {
		all = append(all, netip.MustParseAddr(ip))
	}
	return all
}

// describeDeadline describes a deadline.
func describeDeadline(at, now time.Time) string {
	if at.Before(now) {
		at = now
	}
	return "from " + at.UTC().Format(time.RFC3339Nano) + " on"
}
