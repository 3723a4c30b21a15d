package config

import (
	"fmt"
	"strconv"
	"strings"
)

// Setting is a key and a value as someone wrote them, and where.
type Setting struct {
	Key, Value string
	Origin     string // "server.properties:12", "--set", "--listen"
}

// ParseProperties reads the syntax of Java's Properties.load: "=", ":" or blanks
// after the key, "#" and "!" comments, a backslash before the end of a line to
// continue it, escapes \t \n \r \f \uXXXX. Bytes above 127 are kept as they
// are. name stands in the origins. The problems are lines that Java refuses.
func ParseProperties(name, text string) ([]Setting, []Problem) {
	var settings []Setting
	var problems []Problem
	text = strings.ReplaceAll(text, "\r\n", "\n")
	lines := strings.Split(strings.ReplaceAll(text, "\r", "\n"), "\n")
	for i := 0; i < len(lines); i++ {
		line := strings.TrimLeft(lines[i], " \t\f")
		if line == "" || line[0] == '#' || line[0] == '!' {
			continue
		}
		origin := fmt.Sprintf("%s:%d", name, i+1)
		for continues(line) {
			line = line[:len(line)-1]
			if i++; i == len(lines) {
				break
			}
			line += strings.TrimLeft(lines[i], " \t\f")
		}
		rawKey, rawValue := splitProperty(line)
		key, err := unescape(rawKey)
		if err == nil {
			var v string
			if v, err = unescape(rawValue); err == nil {
				settings = append(settings, Setting{key, v, origin})
				continue
			}
		}
		problems = append(problems, Problem{Origin: origin, Text: err.Error()})
	}
	return settings, problems
}

// continues reports whether line ends in an odd number of backslashes.
func continues(line string) bool {
	n := len(line) - len(strings.TrimRight(line, `\`))
	return n%2 == 1
}

// splitProperty cuts a logical line at the first separator that is not escaped.
func splitProperty(line string) (key, value string) {
	end := len(line)
scan:
	for i := 0; i < len(line); i++ {
		switch line[i] {
		case '\\':
			i++
		case '=', ':', ' ', '\t', '\f':
			end = i
			break scan
		}
	}
	rest := strings.TrimLeft(line[end:], " \t\f")
	if rest != "" && (rest[0] == '=' || rest[0] == ':') {
		rest = strings.TrimLeft(rest[1:], " \t\f")
	}
	return line[:end], rest
}

func unescape(s string) (string, error) {
	if !strings.Contains(s, `\`) {
		return s, nil
	}
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] != '\\' {
			b.WriteByte(s[i])
			continue
		}
		if i++; i == len(s) {
			break
		}
		switch s[i] {
		case 't':
			b.WriteByte('\t')
		case 'n':
			b.WriteByte('\n')
		case 'r':
			b.WriteByte('\r')
		case 'f':
			b.WriteByte('\f')
		case 'u':
			if i+5 > len(s) {
				return "", fmt.Errorf(`malformed \u escape`)
			}
			n, err := strconv.ParseUint(s[i+1:i+5], 16, 16)
			if err != nil {
				return "", fmt.Errorf(`malformed \u escape`)
			}
			b.WriteRune(rune(n))
			i += 4
		default:
			b.WriteByte(s[i])
		}
	}
	return b.String(), nil
}
