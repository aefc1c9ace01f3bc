// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package reference

import (
	"errors"
	"fmt"
	"strings"
)

// Parse parses an image name. Names of 64 hexadecimal digits are refused, because runtimes treat them as image IDs.
//
// \treference = name [ ":" tag ] [ "@" digest ]
// \tname      = [ domain "/" ] part { "/" part }
// \tdomain    = label { "." label } [ ":" port ], or an IPv6 address in brackets
// \tpart      = lower-case letters and digits, with ".", "_", "__" or dashes between them
// \ttag       = up to 128 letters, digits, "_", "." and "-", the first neither "." nor "-"
// \tdigest    = sha256, sha384 or sha512, ":", and lower-case hexadecimal digits
//
// The text before the first slash is a domain if it is "localhost" or contains a dot, a colon or an upper-case letter;
// otherwise the domain is docker.io.
func Parse(name string) (Reference, error) {
	r, err := parseName(name)
	if err != nil {
		return Reference{}, fmt.Errorf("image name %q: %w", name, err)
	}
	return r, nil
}

func parseName(image string) (Reference, error) {
	if image == "" {
		return Reference{}, errors.New("is empty")
	}
	if isHex(image, 64) {
		return Reference{}, errors.New("is an ID")
	}
	name, digest, hasDigest := strings.Cut(image, "@")
	if hasDigest && !isDigest(digest) {
		return Reference{}, errors.New("digest is not sha256, sha384 or sha512 with its hexadecimal digits")
	}
	domain, rest := Split(name)
	path, tag, hasTag := strings.Cut(rest, ":")
	if hasTag && !isTag(tag) {
		return Reference{}, errors.New("tag is not valid")
	}
	if !isDomain(domain) {
		// Not a valid domain, but the grammar allows it as part of the path, for example "a_b.c/d".
		domain, path = "", domain+"/"+path
	}
	if !isPath(path) {
		return Reference{}, errors.New("repository is not lower-case letters and digits, single separators and slashes")
	}
	if len(path) > maxPathLength {
		return Reference{}, fmt.Errorf("repository is longer than %d characters", maxPathLength)
	}
	short := name
	if hasTag {
		short = name[:len(name)-len(":"+tag)]
	}
	return Reference{Short: short, Domain: domain, Path: path, Tag: tag, Digest: digest}, nil
}

// Split splits an image name into the registry, by default [DockerHub], and the rest: the repository with its tag and
// digest. For example, "localhost/app" has the registry localhost, but "team/app" has DockerHub. Only [Parse] validates the
// name.
func Split(name string) (registry, rest string) {
	first, rest, found := strings.Cut(name, "/")
	switch {
	case !found:
		return DockerHub, defaultNamespace + name
	case first == legacyDockerHub:
		first = DockerHub
	case first != "localhost" && !strings.ContainsAny(first, ".:") && strings.ToLower(first) == first:
		return DockerHub, name
	}
	if first == DockerHub && !strings.Contains(rest, "/") {
		rest = defaultNamespace + rest
	}
	return first, rest
}

func isDigest(text string) bool {
	algorithm, digits, _ := strings.Cut(text, ":")
	switch algorithm {
	case "sha256":
		return isHex(digits, 64)
	case "sha384":
		return isHex(digits, 96)
	case "sha512":
		return isHex(digits, 128)
	}
	return false
}

func isTag(text string) bool {
	return text != "" && len(text) <= 128 && !strings.ContainsAny(text[:1], ".-") &&
		matchesAll(text, func(c byte) bool { return isLetter(c) || isDigit(c) || c == '_' || c == '.' || c == '-' })
}

func isDomain(text string) bool {
	host, port := text, ""
	if i := strings.LastIndexByte(text, ':'); i >= 0 && !strings.HasSuffix(text, "]") {
		host, port = text[:i], text[i+1:]
		if port == "" || !matchesAll(port, isDigit) {
			return false
		}
	}
	if inner, ok := strings.CutPrefix(host, "["); ok {
		inner, ok = strings.CutSuffix(inner, "]")
		return ok && inner != "" && matchesAll(inner, func(c byte) bool {
			return isDigit(c) || c >= 'a' && c <= 'f' || c >= 'A' && c <= 'F' || c == ':'
		})
	}
	for label := range strings.SplitSeq(host, ".") {
		if label == "" || label[0] == '-' || label[len(label)-1] == '-' ||
			!matchesAll(label, func(c byte) bool { return isLetter(c) || isDigit(c) || c == '-' }) {
			return false
		}
	}
	return true
}

func isPath(text string) bool {
	for part := range strings.SplitSeq(text, "/") {
		if !isPathComponent(part) {
			return false
		}
	}
	return true
}

// isPathComponent reports whether text is a valid component of an image path: words of letters and digits with single
// separators.
func isPathComponent(text string) bool {
	alphanumeric := func(c byte) bool { return c >= 'a' && c <= 'z' || isDigit(c) }
	for {
		word := 0
		for word < len(text) && alphanumeric(text[word]) {
			word++
		}
		if word == 0 || word == len(text) {
			return word > 0
		}
		text = text[word:]
		separator := 0
		for separator < len(text) && !alphanumeric(text[separator]) {
			separator++
		}
		switch sep := text[:separator]; {
		case sep == "." || sep == "_" || sep == "__":
		case strings.Trim(sep, "-") != "":
			return false
		}
		text = text[separator:]
	}
}

func isHex(text string, length int) bool {
	return len(text) == length && matchesAll(text, func(c byte) bool { return isDigit(c) || c >= 'a' && c <= 'f' })
}

func matchesAll(text string, matches func(byte) bool) bool {
	for i := range len(text) {
		if !matches(text[i]) {
			return false
		}
	}
	return true
}

func isLetter(c byte) bool { return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' }

func isDigit(c byte) bool { return c >= '0' && c <= '9' }
