# The ε of reserves, included by `compiled_kernel.pyx`. It returns what `numpy_kernel.EpsilonCurve`
# returns. `_search` is `reserve_limits.smallest_epsilon`, operation by operation. `_settle` is
# quicker: it starts from a polynomial through five values, and one evaluation confirms most guesses.

from libc.math cimport ceil, erfc, exp, fabs, frexp, log, log1p, sqrt
from libc.stdint cimport uint64_t

from dpolicy.privacy.certificates import QUANTA_PER_UNIT as _QUANTA_PER_UNIT
from dpolicy.privacy.normal_distribution import TAIL_ERROR as _TAIL_ERROR
from dpolicy.privacy.certificates import FLOAT_ERROR as _FLOAT_ERROR
from dpolicy.privacy.reserves.ladder import LEAK_RATE as _LEAK_RATE
from dpolicy.privacy.reserves.reserve_limits import EPSILON_STEP as _EPSILON_STEP
from dpolicy.privacy.reserves.reserve_limits import LIMIT_ERROR as _LIMIT_ERROR
from dpolicy.privacy.reserves.reserve_limits import MAX_SEARCH_STEPS as _MAX_SEARCH_STEPS

cdef enum:
    NODES = 5
    # Cells per octave of the variance, and the number of all cells.
    CELLS_PER_OCTAVE = 8
    MAX_CELLS = 64 * CELLS_PER_OCTAVE
    # Octaves from this on have whole quanta at all nodes.
    MIN_OCTAVE = 10
    # Kept results of one curve; a power of 2.
    KEPT = 256
    KEPT_BITS = 8

cdef double QUANTA_PER_UNIT = _QUANTA_PER_UNIT
cdef int64_t EPSILON_STEP = _EPSILON_STEP
cdef int64_t STEPS_PER_UNIT = _QUANTA_PER_UNIT // _EPSILON_STEP
cdef int64_t INFINITE_STEPS = _INFINITE // _EPSILON_STEP
cdef int MAX_SEARCH_STEPS = _MAX_SEARCH_STEPS
cdef double LEAK_RATE = _LEAK_RATE
cdef double TAIL_ERROR = _TAIL_ERROR
cdef double FLOAT_ERROR = float(_FLOAT_ERROR)
cdef double LIMIT_ERROR = _LIMIT_ERROR
cdef double PI = 3.141592653589793
cdef double HALF_LOG_2PI = 0.5 * log(2 * PI)
cdef double SQRT_2 = sqrt(2.0)
cdef double SQRT_HALF_PI = sqrt(PI / 2)

# Distance of a root from the step below, in steps, for which the slope does not decide.
cdef double UNDECIDED = 0.02
# Largest ε, in steps, that a guess may confirm: floats are too coarse beyond it.
cdef double MAX_GUESS = 2e3 * STEPS_PER_UNIT


cdef struct Cell:
    # Newton's form of the polynomial in √variance; unusable cells are searched without a guess.
    bint is_usable
    double nodes[NODES]
    double differences[NODES]


@cython.final
cdef class EpsilonCurve:
    """The smallest ε of each variance under one part of δ; see `numpy_kernel.EpsilonCurve`."""

    cdef double log_mass
    cdef Cell* cells[MAX_CELLS]
    cdef int64_t kept_variances[KEPT]
    cdef int64_t kept_epsilons[KEPT]

    def __cinit__(self, double log_mass):
        self.log_mass = log_mass

    def __dealloc__(self):
        cdef Py_ssize_t number
        for number in range(MAX_CELLS):
            PyMem_Free(self.cells[number])

    def epsilon(self, int64_t variance):
        """Return the smallest ε that admits a variance, in quanta, rounded up to steps."""
        return self._epsilon(variance)

    cdef int64_t _epsilon(self, int64_t variance) except -1:
        cdef Py_ssize_t place
        if variance <= 0:
            return 0
        if variance >= INFINITE:
            return INFINITE
        place = (<uint64_t> variance * <uint64_t> 0x9E3779B97F4A7C15) >> (64 - KEPT_BITS)
        if self.kept_variances[place] != variance:
            self.kept_epsilons[place] = self._find(variance) * EPSILON_STEP
            self.kept_variances[place] = variance
        return self.kept_epsilons[place]

    cdef int64_t _find(self, int64_t variance) except -1:
        cdef int exponent, eighth
        cdef Py_ssize_t number
        cdef int64_t step
        eighth = <int> (frexp(<double> variance, &exponent) * 2 * CELLS_PER_OCTAVE)
        number = exponent * CELLS_PER_OCTAVE + eighth - CELLS_PER_OCTAVE
        if self.cells[number] == NULL:
            self.cells[number] = <Cell*> PyMem_Malloc(sizeof(Cell))
            if self.cells[number] == NULL:
                raise MemoryError()
            _fill_cell(self.cells[number], exponent, eighth, self.log_mass)
        if self.cells[number].is_usable:
            step = _settle(variance, self.log_mass, _guess(self.cells[number], variance))
            if step >= 0:
                return step
        return _search(variance, self.log_mass)


@cython.final
cdef class BudgetEpsilon:
    """The displayed ε of reserves beside a budget; see `numpy_kernel.BudgetEpsilon`."""

    cdef EpsilonCurve curve
    cdef int64_t limit
    cdef int64_t budget

    def __cinit__(self, EpsilonCurve curve not None, int64_t limit, int64_t budget):
        self.curve, self.limit, self.budget = curve, limit, budget

    def lower(self, int64_t displayed, int64_t variance):
        """Return the smaller of a displayed ε and the ε of a variance, in quanta."""
        return self._lower(displayed, variance)

    def lower_both(self, tuple rule not None):
        """Return the displayed ε of a `TightRule` before and after the release, in quanta."""
        if len(rule) < 8:
            raise InvariantBroken("a rule has no variances")
        return self._lower(rule[2], rule[6]), self._lower(rule[3], rule[7])

    cdef int64_t _lower(self, int64_t displayed, int64_t variance) except -1:
        cdef int64_t epsilon = self.curve._epsilon(variance)
        if variance <= self.limit:
            epsilon = min(epsilon, self.budget)
        else:
            epsilon = max(epsilon, self.budget + 1)
        return min(displayed, epsilon)


cdef void _fill_cell(Cell* cell, int exponent, int eighth, double log_mass) noexcept nogil:
    """Set the polynomial of the variances from 2^exponent · eighth/16, over one sixteenth."""
    cdef Py_ssize_t node, order
    cdef int64_t width, variance, step
    cdef double below, slope
    cell.is_usable = False
    if exponent < MIN_OCTAVE:
        return
    width = (<int64_t> 1 << exponent) // (2 * CELLS_PER_OCTAVE)
    for node in range(NODES):
        variance = eighth * width + node * (width // (NODES - 1))
        # The step decides only where G has a good part of the mass.
        if variance >= INFINITE or LEAK_RATE * variance / QUANTA_PER_UNIT > exp(log_mass) / 2:
            return
        step = _search(variance, log_mass)
        if step == 0 or step > MAX_GUESS:
            return
        below = _excess(variance, <double> (step - 1) / STEPS_PER_UNIT, log_mass, &slope)
        below /= below - _excess(variance, <double> step / STEPS_PER_UNIT, log_mass, &slope)
        cell.nodes[node] = sqrt(<double> variance)
        cell.differences[node] = <double> (step - 1) + below
    for order in range(1, NODES):
        for node in range(NODES - 1, order - 1, -1):
            cell.differences[node] -= cell.differences[node - 1]
            cell.differences[node] /= cell.nodes[node] - cell.nodes[node - order]
    cell.is_usable = True


cdef double _guess(const Cell* cell, int64_t variance) noexcept nogil:
    """Return ε of a variance by the polynomial, in steps."""
    cdef Py_ssize_t node
    cdef double root = sqrt(<double> variance), value = cell.differences[NODES - 1]
    for node in range(NODES - 2, -1, -1):
        value = cell.differences[node] + (root - cell.nodes[node]) * value
    return value


cdef int64_t _settle(int64_t variance, double log_mass, double guess) noexcept nogil:
    """Return the smallest ε in steps, by Newton's method; −1 if it does not end soon.

    The slope is constant over a few steps, so it decides whether the step below is too small,
    unless the root is close to that step.
    """
    cdef double excess, slope, distance
    cdef int64_t step
    cdef int attempt
    if not 0.0 < guess < MAX_GUESS:
        return -1
    step = <int64_t> ceil(guess)
    for attempt in range(4):
        excess = _excess(variance, <double> step / STEPS_PER_UNIT, log_mass, &slope)
        distance = excess * STEPS_PER_UNIT / slope
        if -1 + UNDECIDED < distance <= 0:
            return step
        if fabs(distance + 1) <= UNDECIDED:
            excess = _excess(variance, <double> (step - 1) / STEPS_PER_UNIT, log_mass, &slope)
            if excess > 0:
                return step
            step -= 1
        elif fabs(distance) < MAX_GUESS:
            step += <int64_t> ceil(distance)
        else:
            return -1
        if step < 1:
            return -1
    return -1


cdef int64_t _search(int64_t variance, double log_mass) noexcept nogil:
    """Return the smallest ε in steps, by the search of `reserve_limits.smallest_epsilon`."""
    cdef int64_t low = 0, high = STEPS_PER_UNIT, middle
    cdef double slope, share, excess
    cdef double above = _excess(variance, 0.0, log_mass, &slope)
    cdef double below = _excess(variance, 1.0, log_mass, &slope)
    cdef int last = 0, steps = 0
    if above <= 0:
        return 0
    while below > 0:
        low, above, high = high, below, 2 * high
        if high > INFINITE_STEPS:
            return INFINITE_STEPS
        below = _excess(variance, <double> high / STEPS_PER_UNIT, log_mass, &slope)
    while high - low > 1:
        share = above / (above - below) if steps < MAX_SEARCH_STEPS else 0.5
        steps += 1
        middle = low + <int64_t> ceil(<double> (high - low) * share)
        middle = min(max(middle, low + 1), high - 1)
        excess = _excess(variance, <double> middle / STEPS_PER_UNIT, log_mass, &slope)
        if excess > 0:
            low, above = middle, excess
            if last == 1:
                below = below / 2
            last = 1
        else:
            high, below = middle, excess
            if last == -1:
                above = above / 2
            last = -1
    return high


cdef double _excess(
    int64_t variance, double epsilon, double log_mass, double* slope
) noexcept nogil:
    """Return `reserve_limits._excess`; set how fast it falls per unit of ε."""
    cdef double total = <double> variance / QUANTA_PER_UNIT * (1 + LIMIT_ERROR)
    cdef double fall
    cdef double reached = _gaussian_log_delta(sqrt(total), epsilon * (1 - LIMIT_ERROR), &fall)
    cdef double leaked = log(LEAK_RATE * total)
    cdef double smaller = exp(-fabs(reached - leaked))
    cdef double log_sum = max(reached, leaked) + log1p(smaller)
    slope[0] = fall / (1 + smaller) * (1 if reached >= leaked else smaller)
    return log_sum + (fabs(log_sum) + 1) * LIMIT_ERROR - log_mass + fabs(log_mass) * LIMIT_ERROR


cdef double _gaussian_log_delta(double mu, double epsilon, double* fall) noexcept nogil:
    """Return `conversion.gaussian_log_delta`; set how fast it falls per unit of ε."""
    cdef double a = epsilon / mu - mu / 2, b = epsilon / mu + mu / 2
    cdef double mass, density, ratio = _mills(b), gap
    if a < 0:
        mass = exp(log(erfc(a / SQRT_2) / 2)) * (1 + TAIL_ERROR)
        density = exp(_log_density(a))
        mass = mass - density * ratio * (1 - 4 * TAIL_ERROR)
        fall[0] = density * ratio / mass
        return log(mass)
    gap = _mills(a) * (1 + TAIL_ERROR) - ratio * (1 - TAIL_ERROR)
    fall[0] = ratio / gap
    return _log_density(a) * (1 - FLOAT_ERROR) + log(gap)


cdef double _log_density(double x) noexcept nogil:
    return -x * x / 2 - HALF_LOG_2PI


cdef double _mills(double x) noexcept nogil:
    """Return `normal_distribution.mills`."""
    cdef double ratio = x
    cdef int n
    if x < 3.0:
        return SQRT_HALF_PI * exp(x * x / 2) * erfc(x / SQRT_2)
    for n in range(64 if x < 5 else 24, 0, -1):
        ratio = x + n / ratio
    return 1 / ratio
